package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// currentName is the file with the last time of which a member knows that it had all that was acknowledged before. Its
// log does not show that: one that is behind, or is started again without the others, writes to it, too.
const currentName = "current"

const currentInterval = 5 * time.Second

// watchCurrent writes that file while the member is connected to a quorum.
func (m *Member) watchCurrent(dir string) {
	ctx, cancel := m.untilClosing()
	defer cancel()
	tick := time.NewTicker(currentInterval)
	defer tick.Stop()
	for {
		if err := m.noteCurrent(ctx, dir); err != nil && ctx.Err() == nil {
			m.log.Debug("until when the store is current is not known", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// untilClosing returns a context that ends when the member is closed.
func (m *Member) untilClosing() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	m.running.Go(func() {
		select {
		case <-m.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	return ctx, cancel
}

// noteCurrent reads twice: what the first one found applied is in the log when the second one is answered. After a
// loss of power the file may be that of before, or damaged: it is not synced.
func (m *Member) noteCurrent(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, currentInterval)
	defer cancel()
	began := time.Now()
	if err := m.readThrough(ctx, 2); err != nil {
		return err
	}
	m.current.Store(&began)
	path := filepath.Join(dir, currentName)
	if err := os.WriteFile(path+".new", []byte(began.UTC().Format(time.RFC3339Nano)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readThrough reads so many times through the leader, which needs a quorum.
func (m *Member) readThrough(ctx context.Context, times int) error {
	read := make(chan error, 1)
	go func() {
		var failed error
		for range times {
			_, err := m.client.Get(ctx, compactedKey, clientv3.WithCountOnly())
			failed = errors.Join(failed, err)
		}
		read <- failed
	}()
	select {
	case err := <-read:
		return err
	case <-m.fatal.done: // its client may block from then on, and Close would wait
		return m.fatal.Err()
	}
}

// Current returns when this member last knew that it had all that was acknowledged before; zero: not since it started.
// It is at most currentInterval behind while there is a quorum.
func (m *Member) Current() time.Time {
	if t := m.current.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

// lastCurrent returns until when the member of a directory had all that was acknowledged. Where that was not noted, as
// by v0.3.0, it is when its log was written last.
func lastCurrent(dir string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(dir, currentName))
	if err == nil {
		var t time.Time
		if t, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text))); err == nil {
			return t, nil
		}
	}
	return lastWritten(filepath.Join(dir, "etcd", "member", "wal"))
}
