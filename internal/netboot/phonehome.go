package netboot

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet/internal/auth"
)

// maxPhoneHome bounds the body: the errors of cloud-init, or host keys and names, as cloud-init's own phone_home sends.
const maxPhoneHome = 64 << 10

// Bounds of the errors of cloud-init that are recorded.
const (
	maxCloudErrors     = 8
	maxCloudErrorBytes = 500
)

// cloudErrors returns the errors of cloud-init in the body of a phone-home; none where it is something else.
func cloudErrors(body []byte) (errs []string) {
	var report struct {
		Errors []string `json:"errors"`
	}
	if json.Unmarshal(body, &report) != nil {
		return nil
	}
	for _, e := range report.Errors[:min(len(report.Errors), maxCloudErrors)] {
		errs = append(errs, strings.ToValidUTF8(e[:min(len(e), maxCloudErrorBytes)], ""))
	}
	return errs
}

// servePhoneHome is POST /phone-home/{token}. The token is the whole request: it may be repeated, and sent to any
// head.
func (s *Server) servePhoneHome(w http.ResponseWriter, r *http.Request) {
	token, err := s.Keys.VerifyBoot(auth.PurposePhoneHome, r.PathValue("token"), time.Now())
	if err != nil {
		s.fail(w, r, fmt.Errorf("phone home: %w", err))
		return
	}
	body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPhoneHome)) // what is too long, or ends early, is no report
	if err := s.PhoneHome(r.Context(), token, cloudErrors(body)); err != nil {
		s.fail(w, r, fmt.Errorf("phone home of %s: %w", token.Machine, err))
		return
	}
	s.log.Info("machine phoned home", "machine", token.Machine, "peer", r.RemoteAddr)
	writeText(w, "ok\n")
}
