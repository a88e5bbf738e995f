package bucket

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// Lock is the right to change what is below a prefix. It is an object in locksDir with a name of its own, which is
// put again while the process lives. Who puts its object first and then finds no other one has the lock: of two that
// do so at the same time, each that looks later finds the other. It needs no clock, and no conditional request.
//
// A process that is paused loses it to another one. So it looks before each step that could do harm, and the object is
// removed before another one has the lock.
type Lock struct {
	b    *Bucket
	name string
	stop func()
	done chan struct{}
}

const locksDir = ".locks"

// Times of a lock.
const (
	lockRefresh = 10 * time.Second
	lockExpiry  = 40 * time.Second // an object that was not put again for so long is of a process that was killed
	lockPoll    = 2 * time.Second
)

// Lock locks what is below the prefix. It waits for lockExpiry where a process was killed that had the lock, and fails
// where one lives. Then it removes the incomplete uploads of files that ours reports true of.
func (b *Bucket) Lock(ctx context.Context, ours func(name string) bool) (*Lock, error) {
	l := &Lock{b: b, name: locksDir + "/" + rand.Text(), done: make(chan struct{})}
	for {
		if err := l.awaitOthers(ctx); err != nil {
			return nil, err
		}
		if err := l.put(ctx); err != nil {
			return nil, err
		}
		others, err := l.others(ctx)
		if err == nil && len(others) == 0 {
			break
		}
		l.remove(ctx)
		if err != nil {
			return nil, err
		}
		if err := wait.Sleep(ctx, lockPoll/2+mathrand.N(lockPoll)); err != nil {
			return nil, err
		}
	}
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	l.stop = stop
	go l.keep(keep)
	if err := b.abortAll(ctx, ours); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// awaitOthers returns when there is no other lock. It removes those that do not change for lockExpiry.
func (l *Lock) awaitOthers(ctx context.Context) error {
	var before map[string]string
	for since := time.Now(); ; {
		others, err := l.others(ctx)
		if err != nil || len(others) == 0 {
			return err
		}
		var old []string
		for name, version := range others {
			if was, known := before[name]; known && was != version {
				return l.busy()
			} else if known {
				old = append(old, locksDir+"/"+name)
			}
		}
		switch {
		case before == nil:
			before = others
		case len(old) < len(others): // another one came
			return l.busy()
		case time.Since(since) > lockExpiry:
			return l.b.remove(ctx, old...)
		}
		if err := wait.Sleep(ctx, lockPoll); err != nil {
			return err
		}
	}
}

// ErrBusy: another process has the lock. It is a trivet.ErrConflict.
var ErrBusy = fmt.Errorf("%w", trivet.ErrConflict)

func (l *Lock) busy() error {
	return &trivet.Error{Op: "lock", Name: l.b.Path(""), Hint: "wait until that one is complete",
		Err: fmt.Errorf("%w: another backup or prune uses it", ErrBusy)}
}

func (l *Lock) conflict(problem, hint string) error {
	return &trivet.Error{Op: "lock", Name: l.b.Path(""), Hint: hint,
		Err: fmt.Errorf("%w: %s", trivet.ErrConflict, problem)}
}

// others returns the other locks, each with what differs from one version to the next.
func (l *Lock) others(ctx context.Context) (map[string]string, error) {
	all, err := l.all(ctx)
	delete(all, strings.TrimPrefix(l.name, locksDir+"/"))
	return all, err
}

func (l *Lock) all(ctx context.Context) (map[string]string, error) {
	all := map[string]string{}
	err := l.b.list(ctx, locksDir, func(name string, o minio.ObjectInfo) {
		all[name] = o.ETag + " " + o.LastModified.String()
	})
	return all, err
}

// put puts the object, with another content than before.
func (l *Lock) put(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lockExpiry)
	defer cancel()
	text := rand.Text()
	sha, md := sums([]byte(text))
	_, err := l.b.api.PutObject(ctx, l.b.name, l.b.prefix+l.name, strings.NewReader(text), int64(len(text)), md, sha,
		minio.PutObjectOptions{DisableContentSha256: true})
	return l.b.explain(ctx, "lock", "", err)
}

// keep puts the object again while it is there.
func (l *Lock) keep(ctx context.Context) {
	defer close(l.done)
	for wait.Sleep(ctx, lockRefresh) == nil {
		all, err := l.all(ctx)
		if _, there := all[strings.TrimPrefix(l.name, locksDir+"/")]; err == nil && !there {
			return // confirm reports it
		}
		if err == nil {
			_ = l.put(ctx) // the next one succeeds, or the lock is lost
		}
	}
}

// confirm returns an error if another process has the lock, or may have it.
func (l *Lock) confirm(ctx context.Context) error {
	for range 3 { // another one that tries to lock it is there for a moment
		all, err := l.all(ctx)
		if err != nil {
			return err
		}
		_, there := all[strings.TrimPrefix(l.name, locksDir+"/")]
		switch {
		case there && len(all) == 1:
			return nil
		case !there:
			return l.conflict(fmt.Sprintf("another command took it over, as this one was silent for %s", lockExpiry),
				"run the command again when that one is complete")
		}
		if err := wait.Sleep(ctx, lockPoll/2); err != nil {
			return err
		}
	}
	return l.conflict("another command took it over", "run the command again when that one is complete")
}

// Space returns nil: a bucket has no end that can be known before.
func (l *Lock) Space(int64) error { return nil }

// Remove removes files.
func (l *Lock) Remove(ctx context.Context, names []string) error {
	for some := range slices.Chunk(names, 1000) {
		if err := l.confirm(ctx); err != nil {
			return err
		}
		if err := l.b.remove(ctx, some...); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the lock. Where it cannot, it expires.
func (l *Lock) Close() error {
	l.stop()
	<-l.done
	l.remove(context.Background())
	return nil
}

func (l *Lock) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = l.b.remove(ctx, l.name)
}

// abortAll removes the incomplete uploads of files that ours reports true of.
func (b *Bucket) abortAll(ctx context.Context, ours func(name string) bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	for up := range b.api.ListIncompleteUploads(ctx, b.name, b.prefix, true) {
		if up.Err != nil {
			return b.explain(ctx, "list the incomplete uploads in", "", up.Err)
		}
		name, below := strings.CutPrefix(up.Key, b.prefix)
		if !below || !ours(name) {
			continue
		}
		if err := b.abort(ctx, name, up.UploadID); err != nil {
			return err
		}
	}
	return nil
}
