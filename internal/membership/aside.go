package membership

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// asideTime is the format of the time in the names of what is moved aside.
const asideTime = "20060102T150405.000Z"

// moveDataAside moves what an earlier head left in the directory to aside/NAME-TIME in it. Nothing is deleted. Blobs
// that the same cluster can use stay. If it is interrupted, the next start continues.
func (l *Local) moveDataAside(root *auth.Root) error {
	keep := []string{"aside", "lost+found", "program"} // this process may be one of the programs there
	if old, err := readRoot(l.path("keys")); err == nil && old.Cluster() == root.Cluster() {
		keep = append(keep, "blobs")
	}
	entries, err := os.ReadDir(l.cfg.Dir)
	if err != nil {
		return err
	}
	to := ""
	for _, e := range entries {
		if slices.Contains(keep, e.Name()) || strings.HasPrefix(e.Name(), joinIDPrefix) {
			continue
		}
		if to == "" {
			to = l.path("aside/" + l.cfg.Name + "-" + time.Now().UTC().Format(asideTime))
			if err := os.MkdirAll(to, 0o700); err != nil {
				return err
			}
		}
		if err := os.Rename(l.path(e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	if to != "" {
		l.cfg.Log.Info("moved the old data aside", "head", l.cfg.Name, "directory", to)
	}
	return nil
}

// restartFirstStart starts again a first start that was interrupted while the store was created: such a store may
// know no members, and would wait for them forever. This head has not acknowledged anything yet. Its store is moved
// aside.
//
// A member that joins may have acknowledged entries of the log to others, so it must not lose its log and continue:
// it gets a new ID.
func (l *Local) restartFirstStart(ctx context.Context) error {
	dir := l.path("store/etcd")
	switch {
	case l.data.Started || !fileExists(dir):
		return nil
	case !l.data.joined() && fileExists(AdminFile(l.cfg.Dir)): // the store was complete, and has issued a credential
		return nil
	case !l.data.joined():
		return l.moveStoreAside(dir)
	case !l.learner: // a voter's store is complete
		return nil
	}
	resp, err := l.requestNewMember(ctx)
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	l.data.Member, l.data.Peers = resp.Member, resp.Peers
	if err := l.moveStoreAside(dir); err != nil {
		return err
	}
	return l.saveData()
}

// moveStoreAside moves the store to DATA-DIR/aside.
func (l *Local) moveStoreAside(dir string) error {
	to := l.path("aside/" + filepath.Base(dir) + "-" + time.Now().UTC().Format(asideTime))
	err := os.MkdirAll(filepath.Dir(to), 0o700)
	if err == nil {
		err = os.Rename(dir, to)
	}
	if err != nil {
		return &trivet.Error{Op: "move aside", Name: dir, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	}
	l.cfg.Log.Info("the first start was interrupted; moved its store aside", "directory", to)
	return nil
}
