package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// smallQuota is the quota of the store where it is filled.
const smallQuota = "64MiB"

var smallStore = []kind{{"fill the store", 3, 8 * time.Second, fillStore}}

// Bounds of the fault: how many large records are written at once, and how many in all; how long the heads may take to
// report that the store is full, and runs to end while it is.
const (
	fillers   = 6
	fillMost  = 2000
	fullAfter = 30 * time.Second
	fullRuns  = 45 * time.Second
)

// fillStore writes large records until the store refuses them. While it is full the heads must not be ready, deletions
// and the reports of runs must be accepted. Then the records are deleted, and the store must recover by itself.
func fillStore(ctx context.Context, t *trial) (string, func() error, error) {
	f := &filling{t: t, records: client.Of[trivet.Secret](t.load.sdk)}
	if err := f.fill(ctx); err != nil {
		return "", nil, err
	}
	f.whileFull(ctx)
	return fmt.Sprint(len(f.names), " records"), func() error { return f.free(ctx) }, nil
}

// filling is the large records of one such fault.
type filling struct {
	t       *trial
	records client.Records[trivet.Secret, *trivet.Secret]
	mu      sync.Mutex
	names   []string // guarded by mu; that were acknowledged
	maybe   []string // guarded by mu; of other outcome
	last    error    // guarded by mu; of the last of these
	full    bool     // guarded by mu
}

// wrong notes what a full store does wrong.
func (f *filling) wrong(format string, args ...any) {
	f.t.history.note(func(h *History) { h.Full = append(h.Full, fmt.Sprintf(format, args...)) })
}

// fill creates records until one is refused.
func (f *filling) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	var all sync.WaitGroup
	for i := range fillers {
		all.Go(func() { f.create(ctx, i) })
	}
	all.Wait()
	if !f.full {
		return fmt.Errorf("%d records do not fill the store: %w", len(f.names), f.last)
	}
	return nil
}

// create creates every n-th record until the store is full.
func (f *filling) create(ctx context.Context, from int) {
	data := map[string]string{}
	value := make([]byte, 4<<10)
	for i := range 16 {
		_, _ = rand.Read(value) // what is compressed does not fill a store
		data[fmt.Sprint("k", i)] = hex.EncodeToString(value)
	}
	prefix := fmt.Sprintf("fill-%d", f.t.history.now().Milliseconds())
	for i := from; i < fillMost && ctx.Err() == nil && !f.isFull(); i += fillers {
		name := fmt.Sprint(prefix, "-", i)
		_, err := f.records.Create(ctx, &trivet.Secret{Meta: meta(name), Spec: trivet.SecretSpec{Data: data}})
		f.note(name, err)
	}
}

// note notes the outcome of a create.
func (f *filling) note(name string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.names = append(f.names, name)
	case isFull(err):
		f.full = true
	default:
		f.last = err
		f.maybe = append(f.maybe, name)
	}
}

func (f *filling) isFull() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}

// isFull reports whether an error is that of a full store.
func isFull(err error) bool { return err != nil && strings.Contains(err.Error(), "the store is full") }

// whileFull checks what a full store must do.
func (f *filling) whileFull(ctx context.Context) {
	runs := f.atWork(ctx)
	within, cancel := context.WithTimeout(ctx, fullAfter)
	defer cancel()
	for _, h := range f.t.heads {
		if err := testhead.Eventually(within, func() error { return notReady(within, h) }); err != nil {
			f.wrong("%s: %v", h.port, err)
		}
	}
	from := f.t.history.now()
	if err := f.records.Delete(within, f.names[0]); err != nil {
		f.wrong("a record cannot be deleted: %v", err)
	}
	f.names = f.names[1:]
	if err := testhead.Eventually(within, func() error { return f.t.wroteSince(from) }); err != nil {
		f.wrong("a small change is not accepted: %v", err)
	}
	f.runsEnd(ctx, runs)
}

// notReady returns an error unless a head reports that the store is full.
func notReady(ctx context.Context, h *head) error {
	switch _, err := h.get(ctx, "/readyz", ""); {
	case err == nil:
		return errors.New("the head is ready, and the store is full")
	case !isFull(err):
		return err
	}
	return nil
}

// atWork returns the runs that agents work on.
func (f *filling) atWork(ctx context.Context) (names []string) {
	list, _, err := client.Of[trivet.Workflow](f.t.load.sdk).List(ctx, client.ListOptions{})
	if err != nil {
		f.wrong("runs cannot be listed: %v", err)
	}
	for _, w := range list {
		if w.Status.State == trivet.WorkflowRunning {
			names = append(names, w.Name)
		}
	}
	return names
}

// explain says what a run waits for.
func (f *filling) explain(ctx context.Context, w *trivet.Workflow) error {
	text := fmt.Sprintf("it is %s", w.Status.State)
	if s := w.Status.Current(); s != nil {
		text += fmt.Sprintf(" at %s since %s, attempt %d, after %d resets", s.Name, s.Started, s.Attempt, w.Status.Resets)
	}
	m, err := client.Of[trivet.Machine](f.t.load.sdk).Get(ctx, w.Spec.Machine)
	if err == nil {
		text += fmt.Sprintf("; its machine %s is %s, power %q, intent %+v, epoch %d of %d", m.Name, m.Status.State,
			m.Status.Power, m.Status.Intent, w.Status.Epoch, m.Status.Epoch)
	}
	return errors.Join(errors.New(text), err)
}

// runsEnd waits until runs have ended.
func (f *filling) runsEnd(ctx context.Context, runs []string) {
	ctx, cancel := context.WithTimeout(ctx, fullRuns)
	defer cancel()
	for _, name := range runs {
		err := testhead.Eventually(ctx, func() error {
			w, err := client.Of[trivet.Workflow](f.t.load.sdk).Get(ctx, name)
			if err == nil && !w.Status.State.Ended() {
				err = f.explain(ctx, w)
			}
			if errors.Is(err, trivet.ErrNotFound) { // it was deleted with its provision
				err = nil
			}
			return err
		})
		if err != nil {
			f.wrong("run %s does not end: %v", name, err)
		}
	}
}

// free deletes the records, and checks that there were all of them, and then none.
func (f *filling) free(ctx context.Context) error {
	there, err := f.list(ctx)
	if err != nil {
		return err
	}
	for _, name := range f.names {
		if !slices.Contains(there, name) {
			f.wrong("record %s was acknowledged and is lost", name)
		}
	}
	all := append(f.names, f.maybe...)
	for _, name := range all {
		err := f.records.Delete(ctx, name)
		if err != nil && !errors.Is(err, trivet.ErrNotFound) {
			return fmt.Errorf("a record cannot be deleted: %w", err)
		}
	}
	left, err := f.list(ctx)
	for _, name := range left {
		if slices.Contains(all, name) {
			f.wrong("record %s was deleted and is there", name)
		}
	}
	return err
}

// list returns the names of all records of this kind, as a quorum knows them.
func (f *filling) list(ctx context.Context) (names []string, err error) {
	list, _, err := f.records.List(ctx, client.ListOptions{})
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names, err
}
