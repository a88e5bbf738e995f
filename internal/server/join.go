package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/heads"
)

// joinPatience is how long a head waits for its place: another one may be joining.
const joinPatience = 5 * time.Minute

// ErrNotJoined: a start was told to stop before its head was one of the cluster. The next one goes on with the same token.
var ErrNotJoined = errors.New("stopped before it had joined")

// first says whether this start is one by which the head joins.
func (s *Server) first() bool { return s.joining || s.data.Token != "" && s.data.isNew() }

// plan decides whether this start joins a cluster, and refuses one that would mix two. Data that are there win over --join,
// which may stay in the command of every start.
func (s *Server) plan(context.Context) (err error) {
	if len(s.cfg.Join) == 0 {
		return s.noStrayToken()
	}
	if s.data.Format != 0 && s.cfg.JoinToken == "" && !s.cfg.Rejoin {
		return nil
	}
	if s.token, err = heads.ParseToken(s.cfg.JoinToken); err != nil {
		return err
	}
	switch {
	case s.data.Format != 0 && s.data.Token == s.token.ID: // it has joined by this one
		return nil
	case s.data.Format == 0 && (s.cfg.Rejoin || !fileExists(s.path("store/etcd"))), s.cfg.Rejoin:
		s.joining = true
		return s.unused()
	case s.data.Format == 0:
		return &trivet.Error{Op: "join", Name: s.cfg.Dir, Err: fmt.Errorf("%w: the folder holds the store of some head", trivet.ErrConflict),
			Hint: "give an empty folder by --data-dir, or set the old data aside by --rejoin"}
	}
	root, err := readRoot(s.path("keys"))
	if err == nil && root.Pin() != s.token.Pin {
		return &trivet.Error{Op: "join", Name: s.cfg.Dir, Hint: "give an empty folder by --data-dir, or set the old data aside by --rejoin",
			Err: fmt.Errorf("%w: the folder is of %s in cluster %s, and the token is for another cluster", trivet.ErrConflict, s.data.Name, root.Cluster())}
	}
	s.unusedJoin = true
	return nil
}

// tellUnused tells of a token that is not used, once it is clear that this head is still a member.
func (s *Server) tellUnused(context.Context) error {
	if s.unusedJoin {
		s.cfg.Log.Info("this head is a member already; --join and --token are not used", "head", s.data.Name)
	}
	return nil
}

// asWitness says whether this start is a witness's.
func (s *Server) asWitness() bool {
	return s.data.witness() || s.joining && s.token.Role == trivet.RoleWitness
}

// noStrayToken refuses to begin another cluster where a join was meant. A head that has joined may find its token in its
// environment for ever.
func (s *Server) noStrayToken() error {
	if s.data.Format != 0 || s.cfg.JoinToken == "" {
		return nil
	}
	return &trivet.Error{Op: "start", Name: s.cfg.Dir, Err: fmt.Errorf("%w: a join token is given but no --join URL", trivet.ErrInvalid),
		Hint: "add --join https://HEAD:7480, a head of the token's cluster; for a new cluster leave out --token and TRIVET_JOIN_TOKEN"}
}

// unused makes sure that no other process has the folder whose data may be set aside.
func (s *Server) unused() error {
	f, err := os.Open(s.path("store/lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return &trivet.Error{Op: "lock data folder", Name: s.cfg.Dir, Err: fmt.Errorf("%w: another process uses it", trivet.ErrUnavailable), Hint: "stop it first"}
	}
	return nil
}

// join asks the cluster for a place, and keeps what it gets. A start that is cut off anywhere asks again at the next one, and
// gets the same place.
func (s *Server) join(ctx context.Context) error {
	id, err := s.joinID()
	if err != nil {
		return err
	}
	key, csr, err := newPeerKey()
	if err != nil {
		return err
	}
	if err := s.showKey(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	ask := heads.Ask{Role: s.token.Role, ID: id, Peer: s.APIURLs()[0], CSR: csr, Version: s.cfg.Version}
	place, err := heads.Join(ctx, s.cfg.Join, s.token, ask, s.cfg.Log)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return s.take(place, key)
}

// take makes this head the one that it has become.
func (s *Server) take(place *heads.Place, key []byte) error {
	root, err := auth.ParseRoot(place.CA)
	switch {
	case err != nil:
		return err
	case root.Pin() != s.token.Pin || place.Role != s.token.Role || trivet.ValidateName(place.Name) != nil:
		return fmt.Errorf("join: %w: the place of %.60q as %.20q does not fit the token", trivet.ErrInvalid, place.Name, place.Role)
	}
	if s.cfg.Rejoin {
		if err := s.setAside(root); err != nil {
			return &trivet.Error{Op: "set aside the old data of", Name: s.cfg.Dir, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
		}
	}
	s.data = dataFile{Format: dataFormat, Name: place.Name, Role: place.Role, Token: s.token.ID, Member: place.Member, URL: s.APIURLs()[0], Peers: place.Peers}
	s.cfg.Name, s.root = place.Name, root
	if err := s.install(place); err != nil {
		return err
	}
	return s.setPeer(slices.Concat(place.Cert, key))
}

// install writes the keys of the cluster. They may be there from a start that was cut off.
func (s *Server) install(place *heads.Place) (err error) {
	dir := s.path("keys")
	if s.data.witness() {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		return renameio.WriteFile(dir+"/ca.pem", place.CA, 0o644)
	}
	s.keys, err = auth.Load(dir)
	if errors.Is(err, trivet.ErrNotFound) {
		s.keys, err = auth.Install(dir, place.Keys)
	}
	if err == nil && s.keys.CA.Pin() != s.token.Pin {
		err = &trivet.Error{Op: "join", Name: dir, Err: fmt.Errorf("%w: keys of cluster %s are there", trivet.ErrConflict, s.keys.CA.Cluster()),
			Hint: "give an empty folder by --data-dir, or set the old data aside by --rejoin"}
	}
	return err
}

// joinIDFile keeps the name of the request that spends a token, so that it can be said again.
func (s *Server) joinIDFile(token string) string { return s.path("join-" + token) }

func (s *Server) joinID() (string, error) {
	file := s.joinIDFile(s.token.ID)
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text())
		err = renameio.WriteFile(file, text, 0o600)
	}
	return string(text), err
}

// asideTime names what is set aside.
const asideTime = "20060102T150405.000Z"

// setAside moves what an earlier head left in the folder to aside/NAME-TIME in it. Nothing is deleted. Blobs stay where they
// are of use to the same cluster. Cut off, it goes on at the next start.
func (s *Server) setAside(root *auth.Root) error {
	stays := []string{"aside", "lost+found"}
	if old, err := readRoot(s.path("keys")); err == nil && old.Pin() == root.Pin() {
		stays = append(stays, "blobs")
	}
	entries, err := os.ReadDir(s.cfg.Dir)
	if err != nil {
		return err
	}
	to := ""
	for _, e := range entries {
		if slices.Contains(stays, e.Name()) || strings.HasPrefix(e.Name(), "join-") {
			continue
		}
		if to == "" {
			to = s.path("aside/" + s.cfg.Name + "-" + time.Now().UTC().Format(asideTime))
			if err := os.MkdirAll(to, 0o700); err != nil {
				return err
			}
		}
		if err := os.Rename(s.path(e.Name()), to+"/"+e.Name()); err != nil {
			return err
		}
	}
	if to != "" {
		s.cfg.Log.Info("the old data are set aside", "head", s.cfg.Name, "folder", to)
	}
	return nil
}
