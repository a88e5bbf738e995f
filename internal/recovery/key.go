package recovery

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// Key is the secret part of recovery keys, which opens the keys in backups, with what its file says about the
// cluster: by that, a backup that another party made with keys of its own is found.
type Key struct {
	identities []*age.X25519Identity
	clusters   []string // of comments; none: not known
	trust      []string // pins of the cluster's CAs, likewise
}

// NewKey creates a recovery key. text is the contents of its file, which are secret, and recipient its public part.
// trust is the pins of the CAs of the cluster.
func NewKey(cluster, trust string, now time.Time) (text auth.Secret, recipient string, err error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", "", err
	}
	text = auth.Secret(fmt.Sprintf("# Recovery key of Trivet cluster %s, created %s.\n"+
		"# It opens every backup of the cluster. Keep it apart from them and from the heads.\n"+
		"# public: %s\n%s%s\n%s%s\n%s\n", cluster, now.UTC().Format(time.RFC3339), id.Recipient(),
		clusterLine, cluster, trustLine, trust, id))
	return text, id.Recipient().String(), nil
}

// What begins the lines of a key's file that are used.
const (
	clusterLine = "# cluster: "
	trustLine   = "# trust: "
)

// ReadKey reads a file of NewKey, or several in one.
func ReadKey(path string) (*Key, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, explain("read the recovery key", path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, explain("read the recovery key", path, err)
	}
	k, err := parseKey(text)
	if err != nil { // never with the text: it is secret
		return nil, &trivet.Error{Op: "read the recovery key", Name: path,
			Err:  fmt.Errorf("%w: it is not a recovery key", trivet.ErrInvalid),
			Hint: "name the file that trivet backup key wrote; it has a line AGE-SECRET-KEY-1..."}
	}
	return k, nil
}

// TypedKey returns a key that a person has typed: the line AGE-SECRET-KEY-1..., without what its file says about the
// cluster.
func TypedKey(text auth.Secret) (*Key, error) {
	k, err := parseKey([]byte(strings.TrimSpace(text.Reveal())))
	if err != nil { // never with the text: it is secret
		return nil, &trivet.Error{Op: "read the recovery key", Hint: "type the line AGE-SECRET-KEY-1... of its file",
			Err: fmt.Errorf("%w: it is not a recovery key", trivet.ErrInvalid)}
	}
	return k, nil
}

const maxKeyFile = 1 << 20

func parseKey(text []byte) (*Key, error) {
	all, err := age.ParseIdentities(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	k := &Key{}
	for _, id := range all {
		x, ok := id.(*age.X25519Identity)
		if !ok {
			return nil, errors.New("it is a key of another sort")
		}
		k.identities = append(k.identities, x)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if cluster, ok := strings.CutPrefix(line, clusterLine); ok {
			k.clusters = append(k.clusters, cluster)
		}
		if trust, ok := strings.CutPrefix(line, trustLine); ok {
			k.trust = append(k.trust, trust)
		}
	}
	return k, nil
}

// CheckRecipient returns an error if a text is not the public part of a recovery key.
func CheckRecipient(text string) error {
	if _, err := age.ParseX25519Recipient(text); err != nil {
		return &trivet.FieldError{Field: "spec.recoveryKey",
			Problem: "is not the public part of a recovery key: trivet backup key writes it"}
	}
	return nil
}

// opens returns an error if this is not the key that a backup was made for.
func (k *Key) opens(cluster, recipient string) error {
	has := slices.ContainsFunc(k.identities, func(id *age.X25519Identity) bool {
		return id.Recipient().String() == recipient
	})
	switch {
	case len(k.clusters) > 0 && !slices.Contains(k.clusters, cluster):
		return &trivet.Error{Op: "open the backup",
			Err: fmt.Errorf("%w: it is of cluster %s, and the key of cluster %s", trivet.ErrInvalid, cluster,
				strings.Join(k.clusters, ", ")),
			Hint: "pass a backup of that cluster, or the key of the other one by --key"}
	case !has:
		return &trivet.Error{Op: "open the backup", Hint: "pass the file of that key by --key",
			Err: fmt.Errorf("%w: it needs the recovery key %s; the key of the file is %s", trivet.ErrInvalid, recipient,
				k.identities[0].Recipient())}
	}
	return nil
}

// trusts returns an error if the keys in a backup are not those of the cluster that the key was created for: their CA
// is another one, and does not follow one that the key names.
func (k *Key) trusts(ca *auth.CA) error {
	if len(k.trust) == 0 || slices.ContainsFunc(k.trust, ca.Follows) {
		return nil
	}
	return &trivet.Error{Op: "open the backup",
		Err: fmt.Errorf("%w: its CA is %s, and the recovery key names %s", trivet.ErrInvalid, ca.Trust(),
			strings.Join(k.trust, " ")),
		Hint: "another party has made it: do not restore it; use another backup"}
}
