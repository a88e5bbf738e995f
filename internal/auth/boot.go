package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// Purpose is the endpoint that a boot token is valid for.
type Purpose string

const (
	PurposeBoot      Purpose = "boot"       // send a hello as this machine and register an agent's key
	PurposePhoneHome Purpose = "phone-home" // report that the installed system has booted
	PurposeMetadata  Purpose = "metadata"   // read this machine's metadata
	PurposeJoin      Purpose = "join"       // let what this run has installed join as a head
)

// BootToken authenticates a machine that has no key yet but received this boot script or seed: for one purpose,
// machine, MAC and epoch, until it expires. Every head can verify it without the store. It can be used more than
// once: the transaction that acts on it must compare Epoch with the machine's record, and thereby invalidate it.
type BootToken struct {
	Purpose Purpose
	Machine string    // name of its record
	MAC     string    // in the form of [trivet.CanonicalMAC]
	Epoch   int64     // not negative
	Run     string    // UID of the run that it belongs to; empty for one that belongs to none
	Expires time.Time // whole seconds; compared with the clocks of heads only
}

// bootPrefix carries the version of the form:
//
//	tb1~<purpose>~<machine>~<mac, bare hex>~<epoch>~<run>~<expires, unix seconds>~<key ID>.<HMAC-SHA256, base64url>
//
// No character needs escaping in URLs, iPXE scripts, kernel command lines and shells. Machine names may contain
// '-', '.' and ':', but not '~'.
const bootPrefix = "tb1"

const maxBootToken = 480

var runForm = regexp.MustCompile(`^[-A-Za-z0-9]{0,64}$`)

// SignBoot returns the text of a boot token, or [trivet.ErrInvalid] if a field is invalid.
func (k *Keys) SignBoot(t BootToken) (string, error) {
	body, err := t.body()
	if err != nil {
		return "", fmt.Errorf("sign boot token: %w", err)
	}
	return body + "~" + bootMAC(k.Ring(trivet.BootKey).First(), body), nil
}

// JoinID returns an ID of a boot token by which a head joins, which is no secret. ok: the text has the form of one; it
// is not verified.
func JoinID(text string) (id string, ok bool) {
	if !strings.HasPrefix(text, bootPrefix+"~"+string(PurposeJoin)+"~") || len(text) > maxBootToken {
		return "", false
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8]), true
}

// VerifyBoot verifies the text of a boot token for a purpose, or returns [trivet.ErrUnauthenticated].
func (k *Keys) VerifyBoot(purpose Purpose, text string, now time.Time) (BootToken, error) {
	cut := strings.LastIndexByte(text, '~')
	if cut < 0 || len(text) > maxBootToken {
		return BootToken{}, bootError("malformed")
	}
	// The signature covers the received text, so each token has one text and nothing unauthenticated is parsed.
	if !k.signedBoot(text[:cut], text[cut+1:]) {
		return BootToken{}, bootError("not signed by this cluster")
	}
	t, err := parseBoot(text[:cut])
	switch {
	case err != nil:
		return BootToken{}, err
	case t.Purpose != purpose:
		return BootToken{}, bootError(fmt.Sprintf("issued for %q, not for %q", t.Purpose, purpose))
	case !now.Before(t.Expires):
		return BootToken{}, bootError(fmt.Sprintf(
			"of machine %s expired at %s; it is %s by this head's clock (boot the machine again)",
			t.Machine, t.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339)))
	}
	return t, nil
}

// bootMAC returns the signature of a token: the ID of the key, and the HMAC.
func bootMAC(key *keyring.Key, body string) string {
	return key.ID().String() + "." + base64.RawURLEncoding.EncodeToString(key.MAC(body))
}

// signedBoot reports whether one of the boot keys has signed a token.
func (k *Keys) signedBoot(body, signature string) bool {
	digits, _, _ := strings.Cut(signature, ".")
	id, err := keyring.ParseID(digits)
	if err != nil {
		return false
	}
	key, ok := k.Ring(trivet.BootKey).Get(id)
	return ok && hmac.Equal([]byte(signature), []byte(bootMAC(key, body)))
}

func (t BootToken) body() (string, error) {
	if err := trivet.ValidateName(t.Machine); err != nil {
		return "", err
	}
	switch t.Purpose {
	case PurposeBoot, PurposePhoneHome, PurposeMetadata, PurposeJoin:
	default:
		return "", &trivet.FieldError{Field: "purpose", Problem: fmt.Sprintf("%q is unknown", t.Purpose)}
	}
	if mac, err := trivet.CanonicalMAC(t.MAC); err != nil || mac != t.MAC {
		problem := fmt.Sprintf("%q is not a MAC address in canonical form", t.MAC)
		return "", &trivet.FieldError{Field: "mac", Problem: problem}
	}
	if t.Epoch < 0 {
		return "", &trivet.FieldError{Field: "epoch", Problem: "is negative"}
	}
	if !runForm.MatchString(t.Run) {
		return "", &trivet.FieldError{Field: "run", Problem: fmt.Sprintf("%q is not a UID", t.Run)}
	}
	return strings.Join([]string{bootPrefix, string(t.Purpose), t.Machine, strings.ReplaceAll(t.MAC, ":", ""),
		strconv.FormatInt(t.Epoch, 10), t.Run, strconv.FormatInt(t.Expires.Unix(), 10)}, "~"), nil
}

// parseBoot is the inverse of body. It rejects any other text.
func parseBoot(body string) (BootToken, error) {
	f := strings.Split(body, "~")
	if len(f) != 7 || f[0] != bootPrefix {
		return BootToken{}, bootError("malformed")
	}
	mac, errMAC := hex.DecodeString(f[3])
	epoch, errEpoch := strconv.ParseInt(f[4], 10, 64)
	expires, errExpires := strconv.ParseInt(f[6], 10, 64)
	if errMAC != nil || errEpoch != nil || errExpires != nil {
		return BootToken{}, bootError("malformed")
	}
	t := BootToken{Purpose: Purpose(f[1]), Machine: f[2], MAC: net.HardwareAddr(mac).String(), Epoch: epoch,
		Run: f[5], Expires: time.Unix(expires, 0)}
	if again, err := t.body(); err != nil || again != body {
		return BootToken{}, bootError("malformed")
	}
	return t, nil
}

func bootError(problem string) error {
	return fmt.Errorf("boot token: %w: %s", trivet.ErrUnauthenticated, problem)
}
