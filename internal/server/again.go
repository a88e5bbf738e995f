package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet"
)

// beginAgain begins a first start anew that was cut off while the store was made: such a store may know no members, and would
// wait for them for ever. Nothing was acknowledged by this head yet. What is there is set aside.
//
// A member that joins may have told others what its log holds, so it must not lose that and go on: it gets a new ID.
func (s *Server) beginAgain(ctx context.Context) error {
	dir := s.path("store/etcd")
	switch {
	case !s.data.isNew() || !fileExists(dir):
		return nil
	case s.data.Token == "" && fileExists(AdminFile(s.cfg.Dir)): // the store was whole, and has given a credential
		return nil
	case s.data.Token == "":
		return s.putAside(dir)
	case !s.learning: // it counts, so its store is whole
		return nil
	}
	if err := s.newMember(ctx); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	if err := s.putAside(dir); err != nil {
		return err
	}
	return s.keepData()
}

// newMember asks the others to make a new member of this one, until one does. (The store makes IDs of the time, in seconds.)
func (s *Server) newMember(ctx context.Context) error {
	for end := time.Now().Add(joinPatience); ; {
		var err error
		for _, p := range s.others() {
			again, errOne := s.caller.Again(ctx, p.URL)
			if errOne == nil {
				s.data.Member, s.data.Peers = again.Member, again.Peers
				return nil
			}
			err = errors.Join(err, fmt.Errorf("%s: %w", p.URL, errOne))
		}
		if time.Now().After(end) {
			return &trivet.Error{Op: "begin again", Name: s.data.Name, Err: errors.Join(trivet.ErrUnavailable, err), Hint: "start it again when the other heads are up"}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// putAside moves a file or folder to DATA-DIR/aside.
func (s *Server) putAside(path string) error {
	to := s.path("aside/" + filepath.Base(path) + "-" + time.Now().UTC().Format(asideTime))
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.Rename(path, to)
	}
	if err != nil {
		return &trivet.Error{Op: "set aside", Name: path, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	s.cfg.Log.Info("the first start was cut off; what it had made of the store is set aside", "folder", to)
	return nil
}
