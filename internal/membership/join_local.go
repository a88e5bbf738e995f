package membership

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// joinTimeout bounds a join: another head may be joining.
const joinTimeout = 5 * time.Minute

// hintEmptyDirectory is the hint where the data directory is that of another head.
const hintEmptyDirectory = "pass an empty directory by --data-dir, or move the old data aside by --rejoin"

// planJoin decides whether this start joins a cluster, and refuses a start that would mix two. Existing data takes
// precedence over --join, which may stay in the command of every start.
func (l *Local) planJoin() (err error) {
	if len(l.cfg.Join) == 0 {
		return l.checkNoToken()
	}
	if l.data.exists() && l.cfg.JoinToken == "" && !l.cfg.Rejoin {
		return nil
	}
	if l.token, err = ParseToken(l.cfg.JoinToken); err != nil {
		return err
	}
	switch {
	case l.data.exists() && l.data.Token == l.token.ID: // it has joined by this token
		return nil
	case !l.data.exists() && (l.cfg.Rejoin || !fileExists(l.path("store/etcd"))), l.cfg.Rejoin:
		l.joining = true
		return l.checkUnlocked()
	case !l.data.exists():
		return &trivet.Error{Op: "join", Name: l.cfg.Dir,
			Err:  fmt.Errorf("%w: the directory holds the store of another head", trivet.ErrConflict),
			Hint: hintEmptyDirectory}
	}
	root, err := readRoot(l.path("keys"))
	if err == nil && !l.isOf(root) {
		return &trivet.Error{Op: "join", Name: l.cfg.Dir, Hint: hintEmptyDirectory,
			Err: fmt.Errorf("%w: the directory is of %s in cluster %s, and the token is for another cluster",
				trivet.ErrConflict, l.data.Name, root.Cluster())}
	}
	l.unusedToken = true
	return nil
}

// isOf reports whether the token is of the cluster of the directory: it may be older than the CA.
func (l *Local) isOf(root *auth.Root) bool {
	if root.Matches(l.token.Trust) {
		return true
	}
	keys, err := auth.Load(l.path("keys"))
	return err == nil && keys.CA.Follows(l.token.Trust)
}

// logUnusedToken logs that the token is not used, once it is verified that this head is a member.
func (l *Local) logUnusedToken(context.Context) error {
	if l.unusedToken {
		l.cfg.Log.Info("this head is a member already; ignoring --join and --token", "head", l.data.Name)
	}
	return nil
}

// checkNoToken refuses to create a cluster where a join was meant. A head that has joined may find its token in its
// environment forever.
func (l *Local) checkNoToken() error {
	if l.data.exists() || l.cfg.JoinToken == "" {
		return nil
	}
	return &trivet.Error{Op: "start", Name: l.cfg.Dir,
		Err: fmt.Errorf("%w: there is a join token but no --join URL", trivet.ErrInvalid),
		Hint: "add --join https://HEAD:7480, a head of the token's cluster; for a new cluster omit --token " +
			"and TRIVET_JOIN_TOKEN"}
}

// checkUnlocked makes sure that no other process uses the directory whose data may be moved aside.
func (l *Local) checkUnlocked() error {
	f, err := os.Open(l.path("store/lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return &trivet.Error{Op: "lock data directory", Name: l.cfg.Dir, Hint: "stop it first",
			Err: fmt.Errorf("%w: another process uses it", trivet.ErrUnavailable)}
	}
	return nil
}

// join joins the cluster and stores the response. A start that is interrupted anywhere sends the same request at the
// next start, and gets the same response.
func (l *Local) join(ctx context.Context) error {
	id, err := l.joinID()
	if err != nil {
		return err
	}
	key, csr, err := newPeerKey()
	if err != nil {
		return err
	}
	if err := l.certs.serveKey(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	req := JoinRequest{Role: l.token.Role, ID: id, Peer: l.addr.Peer, CSR: csr, Version: l.cfg.Version,
		from: l.source()}
	resp, err := SendJoin(ctx, l.cfg.Join, l.token, req, l.cfg.Log)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return l.install(resp, key)
}

// install makes this head the one of the response.
func (l *Local) install(resp *JoinResponse, key []byte) error {
	root, err := auth.ParseRoot(resp.CA)
	switch {
	case err != nil:
		return err
	case !root.Matches(l.token.Trust) || resp.Role != l.token.Role || trivet.ValidateName(resp.Name) != nil:
		return fmt.Errorf("join: %w: the response for %.60q as %.20q does not match the token", trivet.ErrInvalid,
			resp.Name, resp.Role)
	}
	if l.cfg.Rejoin {
		if err := l.moveDataAside(root); err != nil {
			return &trivet.Error{Op: "move aside the old data of", Name: l.cfg.Dir,
				Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
		}
	}
	l.data = dataFile{Format: dataFormat, Name: resp.Name, Role: resp.Role, Token: l.token.ID, Member: resp.Member,
		URL:   l.addr.Peer,
		Peers: resp.Peers, Incarnation: resp.Incarnation}
	l.cfg.Name = resp.Name
	l.root.Store(root)
	if err := l.installKeys(resp); err != nil {
		return err
	}
	return l.certs.replace(slices.Concat(resp.Cert, key))
}

// installKeys writes the keys of the cluster. An interrupted start may have written them.
func (l *Local) installKeys(resp *JoinResponse) (err error) {
	dir := l.path("keys")
	if l.data.witness() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return renameio.WriteFile(dir+"/ca.pem", resp.CA, 0o644)
	}
	l.keys, err = auth.Load(dir)
	if errors.Is(err, trivet.ErrNotFound) {
		l.keys, err = auth.Install(dir, resp.Keys)
	}
	if err == nil && !l.keys.CA.Matches(l.token.Trust) {
		err = &trivet.Error{Op: "join", Name: dir, Hint: hintEmptyDirectory,
			Err: fmt.Errorf("%w: the directory has the keys of cluster %s", trivet.ErrConflict, l.keys.CA.Cluster())}
	}
	return err
}

// joinIDFile is the file of the ID of the join request, which retries after an interrupted start repeat.
func (l *Local) joinIDFile(token string) string { return l.path(joinIDPrefix + token) }

const joinIDPrefix = "join-"

func (l *Local) joinID() (string, error) {
	file := l.joinIDFile(l.token.ID)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text())
		err = renameio.WriteFile(file, text, 0o600)
	}
	return string(text), err
}
