package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Purpose is the one door that a boot token opens.
type Purpose string

const (
	PurposeBoot      Purpose = "boot"       // say hello as this machine and register an agent's key
	PurposePhoneHome Purpose = "phone-home" // report that the installed system came up
	PurposeMetadata  Purpose = "metadata"   // read this machine's metadata
)

// BootToken lets a machine that has no key yet prove that it was given this boot script or seed: for one purpose,
// machine, MAC and epoch, until it expires. Every head can check it, without any store. It may be used more than once:
// whoever accepts it must compare Epoch with the machine's record in the transaction that acts on it, and thereby
// spend it.
type BootToken struct {
	Purpose Purpose
	Machine string    // name of its record
	MAC     string    // in the form of [trivet.CanonicalMAC]
	Epoch   int64     // not negative
	Expires time.Time // whole seconds; judged by the clocks of heads only
}

// bootPrefix carries the version of the form:
//
//	tb1~<purpose>~<machine>~<mac, bare hex>~<epoch>~<expires, unix seconds>~<HMAC-SHA256, base64url>
//
// Every character stands for itself in URLs, iPXE scripts, the kernel's command line and shells. Machine names may hold
// '-', '.' and ':', but not '~'.
const bootPrefix = "tb1"

const maxBootToken = 400

// SignBoot gives the text of a boot token. It fails with [trivet.ErrInvalid] where a field cannot be written.
func (k *Keys) SignBoot(t BootToken) (string, error) {
	body, err := t.body()
	if err != nil {
		return "", fmt.Errorf("sign boot token: %w", err)
	}
	return body + "~" + k.bootMAC(body), nil
}

// VerifyBoot checks the text of a boot token for this purpose. It fails with [trivet.ErrUnauthenticated].
func (k *Keys) VerifyBoot(purpose Purpose, text string, now time.Time) (BootToken, error) {
	cut := strings.LastIndexByte(text, '~')
	if cut < 0 || len(text) > maxBootToken {
		return BootToken{}, bootError("malformed")
	}
	// The signature stands over the text as it came, so there is one text for each token and nothing is parsed unproven.
	if !hmac.Equal([]byte(text[cut+1:]), []byte(k.bootMAC(text[:cut]))) {
		return BootToken{}, bootError("not signed by this cluster")
	}
	t, err := parseBoot(text[:cut])
	switch {
	case err != nil:
		return BootToken{}, err
	case t.Purpose != purpose:
		return BootToken{}, bootError(fmt.Sprintf("made for %q, not for %q", t.Purpose, purpose))
	case !now.Before(t.Expires):
		return BootToken{}, bootError(fmt.Sprintf("of machine %s expired at %s; it is %s by this head's clock (boot the machine again)",
			t.Machine, t.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	}
	return t, nil
}

func (k *Keys) bootMAC(body string) string {
	mac := hmac.New(sha256.New, k.boot)
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (t BootToken) body() (string, error) {
	if err := trivet.ValidateName(t.Machine); err != nil {
		return "", err
	}
	switch t.Purpose {
	case PurposeBoot, PurposePhoneHome, PurposeMetadata:
	default:
		return "", &trivet.FieldError{Field: "purpose", Problem: fmt.Sprintf("%q is not known", t.Purpose)}
	}
	if mac, err := trivet.CanonicalMAC(t.MAC); err != nil || mac != t.MAC {
		return "", &trivet.FieldError{Field: "mac", Problem: fmt.Sprintf("%q is not a MAC address in its one form", t.MAC)}
	}
	if t.Epoch < 0 {
		return "", &trivet.FieldError{Field: "epoch", Problem: "is negative"}
	}
	return strings.Join([]string{bootPrefix, string(t.Purpose), t.Machine, strings.ReplaceAll(t.MAC, ":", ""),
		strconv.FormatInt(t.Epoch, 10), strconv.FormatInt(t.Expires.Unix(), 10)}, "~"), nil
}

// parseBoot reads what body wrote, and refuses every other text.
func parseBoot(body string) (BootToken, error) {
	f := strings.Split(body, "~")
	if len(f) != 6 || f[0] != bootPrefix {
		return BootToken{}, bootError("malformed")
	}
	mac, errMAC := hex.DecodeString(f[3])
	epoch, errEpoch := strconv.ParseInt(f[4], 10, 64)
	expires, errExpires := strconv.ParseInt(f[5], 10, 64)
	if errMAC != nil || errEpoch != nil || errExpires != nil {
		return BootToken{}, bootError("malformed")
	}
	t := BootToken{Purpose: Purpose(f[1]), Machine: f[2], MAC: net.HardwareAddr(mac).String(), Epoch: epoch,
		Expires: time.Unix(expires, 0)}
	if again, err := t.body(); err != nil || again != body {
		return BootToken{}, bootError("malformed")
	}
	return t, nil
}

func bootError(problem string) error {
	return fmt.Errorf("boot token: %w: %s", trivet.ErrUnauthenticated, problem)
}
