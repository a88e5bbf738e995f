package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/trivet-project/trivet"
)

// How heads are lost in each case, and what is done then.

// lose kills heads, and removes their disks.
func (s *recoverySite) lose(heads ...*headProcess) error {
	var errs []error
	for _, n := range heads {
		n.kill()
	}
	for _, n := range heads {
		errs = append(errs, os.RemoveAll(n.dir()))
		s.status("%s is lost, with its disk", n.name)
	}
	return errors.Join(errs...)
}

func (s *recoverySite) loseOne() error { return s.lose(s.heads.all[rand.IntN(3)]) }

// replace replaces the head that is lost: docs/heads.md, "Replace a head".
func (s *recoverySite) replace(ctx context.Context) error {
	lost := slices.IndexFunc(s.heads.all, func(n *headProcess) bool { return !slices.Contains(s.heads.running(), n) })
	s.relay()
	if err := s.reconnect(); err != nil {
		return err
	}
	return s.join(ctx, "head", "replace", s.heads.all[lost].name)
}

func (s *recoverySite) loseTwo() error { return s.lose(s.heads.all[1:]...) }

func (s *recoverySite) loseFirst() error { return s.lose(s.heads.all[0]) }

// fromSurvivor recovers from the head that is left: docs/recovery.md, "After a loss of the quorum".
func (s *recoverySite) fromSurvivor(ctx context.Context) error {
	s.survivor = s.heads.running()[0]
	s.survivor.end(syscall.SIGTERM)
	if err := s.recover(ctx, s.survivor, "--from-survivor"); err != nil {
		return err
	}
	return s.afterwards(ctx)
}

// loseAllButADisk kills all heads, and keeps the data of one. Its last write was not completed.
func (s *recoverySite) loseAllButADisk() error {
	s.killHeads()
	one := s.heads.all[rand.IntN(3)]
	err := os.Rename(one.dir(), s.path("disk"))
	if err == nil {
		err = TearLog(s.path("disk"))
	}
	return errors.Join(err, s.lose(s.heads.all...))
}

// fromDisk recovers from that data: docs/recovery.md, "From the disk of a head".
func (s *recoverySite) fromDisk(ctx context.Context) error {
	if err := s.recover(ctx, s.heads.newHead(), "--from-data-dir", s.path("disk")); err != nil {
		return err
	}
	return s.afterwards(ctx)
}

func (s *recoverySite) loseAll() error { return s.lose(s.heads.all...) }

// fromBackup recovers from the newest backup: docs/recovery.md, "From a backup".
func (s *recoverySite) fromBackup(ctx context.Context) error {
	err := s.recover(ctx, s.heads.newHead(), "--from-backup", s.path("backups"), "--key", s.path("recovery.key"))
	if err != nil {
		return err
	}
	return s.afterwards(ctx)
}

func (s *recoverySite) killHeads() {
	for _, n := range s.heads.all {
		n.kill()
	}
}

func (s *recoverySite) killAll() error {
	s.killHeads()
	s.status("all heads are killed")
	return nil
}

// startAll starts all heads, in another order.
func (s *recoverySite) startAll(ctx context.Context) error {
	order := []*headProcess{s.heads.all[2], s.heads.all[0], s.heads.all[1]}
	for _, n := range order {
		if err := n.launch(); err != nil {
			return err
		}
	}
	for _, n := range order {
		if err := n.awaitServing(ctx); err != nil {
			return err
		}
	}
	return nil
}

// TearLog ends the log of a head's store within a record, as a loss of power does: with a header, and without what it
// announces.
func TearLog(dataDir string) error {
	logs, err := filepath.Glob(filepath.Join(dataDir, "store/etcd/member/wal/*.wal"))
	if err != nil || len(logs) == 0 {
		return errors.Join(err, fmt.Errorf("%w: %s has no log", trivet.ErrNotFound, dataDir))
	}
	path := slices.Max(logs)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	end := len(text)
	for end > 0 && text[end-1] == 0 {
		end--
	}
	end = (end + 7) / 8 * 8 // records are aligned
	torn := append(slices.Clone(text[:end]), 200, 0, 0, 0, 0, 0, 0, 0, 8, 2)
	return os.WriteFile(path, torn, 0o600)
}
