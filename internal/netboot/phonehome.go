package netboot

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/trivet-project/trivet/internal/auth"
)

// maxPhoneHome bounds the body that cloud-init sends: host keys and names. It is not used.
const maxPhoneHome = 64 << 10

// servePhoneHome is POST /phone-home/{token}. The token is the whole request: it may be repeated, and sent to any
// head.
func (s *Server) servePhoneHome(w http.ResponseWriter, r *http.Request) {
	token, err := s.Keys.VerifyBoot(auth.PurposePhoneHome, r.PathValue("token"), time.Now())
	if err != nil {
		s.fail(w, r, fmt.Errorf("phone home: %w", err))
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxPhoneHome))
	if err := s.PhoneHome(r.Context(), token); err != nil {
		s.fail(w, r, fmt.Errorf("phone home of %s: %w", token.Machine, err))
		return
	}
	s.log.Info("machine phoned home", "machine", token.Machine, "peer", r.RemoteAddr)
	writeText(w, "ok\n")
}
