package netboot

import (
	"fmt"
	"io"
	"net/http"

	"github.com/trivet-project/trivet/internal/auth"
)

// maxPhoneHome bounds what cloud-init sends along: its host keys and names. Nothing of it is used.
const maxPhoneHome = 64 << 10

// servePhoneHome is POST /phone-home/{token}. The token is all that counts, so it may be said again, and to any head.
func (d *Door) servePhoneHome(w http.ResponseWriter, r *http.Request) {
	token, err := d.Keys.VerifyBoot(auth.PurposePhoneHome, r.PathValue("token"), d.now())
	if err != nil {
		d.fail(w, r, fmt.Errorf("phone home: %w", err))
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxPhoneHome))
	if err := d.PhoneHome(r.Context(), token); err != nil {
		d.fail(w, r, fmt.Errorf("phone home of %s: %w", token.Machine, err))
		return
	}
	d.log.Info("a machine phoned home", "machine", token.Machine, "peer", r.RemoteAddr)
	writeText(w, "welcome\n")
}
