package installer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// head is a minimal head: it accepts reports once and in order under its epoch, and stores logs.
type head struct {
	mu       sync.Mutex // guards following
	epoch    int64
	acked    int64
	run      *trivet.Run
	order    trivet.Order // once
	paused   bool
	down     error         // while set, no head answers
	stale    *trivet.Grant // while set, the answer to a sync, of a stale head
	heads    []string
	trust    string
	reports  []string // accepted reports, "seq action/attempt state"
	last     []trivet.Report
	syncs    []trivet.Sync
	logs     map[string]string
	woken    chan struct{} // closed at a change, to wake waiting calls
	interval trivet.Duration
	most     int                 // reports that it accepts of one request; 0: all
	onReport func(trivet.Report) // called for each accepted report; may be nil
}

func newHead(actions ...trivet.Action) *head {
	h := &head{epoch: 1, logs: map[string]string{}, woken: make(chan struct{}),
		interval: trivet.Duration(10 * time.Second)}
	if len(actions) > 0 {
		h.run = &trivet.Run{Workflow: "w", UID: "uid", Spec: trivet.WorkflowSpec{Actions: actions}}
	}
	return h
}

func (h *head) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
	close(h.woken)
	h.woken = make(chan struct{})
}

func (h *head) grant() trivet.Grant {
	g := trivet.Grant{Machine: "m", Epoch: h.epoch, Acked: h.acked, Interval: h.interval,
		Blobs: []string{"http://head/blobs"}, Order: h.order, Paused: h.paused,
		Heads: h.heads, Trust: h.trust}
	h.order = ""
	return g
}

func (h *head) Hello(_ context.Context, hello trivet.Hello) (trivet.Grant, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down != nil {
		return trivet.Grant{}, h.down
	}
	if hello.Token != "token" {
		return trivet.Grant{}, fmt.Errorf("hello: %w: token used", trivet.ErrUnauthenticated)
	}
	g := h.grant()
	g.Run = h.run
	return g, nil
}

func (h *head) Sync(ctx context.Context, req trivet.Sync) (trivet.Grant, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syncs = append(h.syncs, req)
	if h.down != nil {
		return trivet.Grant{}, h.down
	}
	if h.stale != nil {
		return *h.stale, nil
	}
	if req.Epoch != h.epoch && len(req.Reports) > 0 {
		return trivet.Grant{}, fmt.Errorf("sync: %w", trivet.ErrFenced)
	}
	first := h.acked
	for _, r := range req.Reports {
		if r.Seq <= h.acked {
			continue
		}
		if h.most > 0 && h.acked == first+int64(h.most) {
			break
		}
		if r.Seq != h.acked+1 {
			return trivet.Grant{}, fmt.Errorf("%w: report %d after %d", trivet.ErrInvalid, r.Seq, h.acked)
		}
		h.acked++
		h.reports = append(h.reports, fmt.Sprintf("%d %s/%d %s", r.Seq, r.Action, r.Attempt, r.State))
		h.last = append(h.last, r)
		if h.onReport != nil {
			h.onReport(r)
		}
	}
	if req.Wait > 0 && h.order == "" && (h.run == nil || req.Epoch == h.epoch) {
		woken := h.woken
		h.mu.Unlock()
		select {
		case <-woken:
		case <-time.After(req.Wait.D()):
		case <-ctx.Done():
		}
		h.mu.Lock()
	}
	g := h.grant()
	if req.Epoch != h.epoch {
		g.Run = h.run
	}
	return g, nil
}

func (h *head) Logs(_ context.Context, workflow string, of trivet.LogKey, offset int64, data []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down != nil {
		return h.down
	}
	key := fmt.Sprintf("%s/%s/%d", workflow, of.Action, of.Attempt)
	if offset != int64(len(h.logs[key])) {
		return fmt.Errorf("%w: offset %d of %d", trivet.ErrConflict, offset, len(h.logs[key]))
	}
	h.logs[key] += string(data)
	return nil
}

func (h *head) wantReports(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.reports, want) {
		t.Errorf("reports:\n%s\nwant:\n%s", strings.Join(h.reports, "\n"), strings.Join(want, "\n"))
	}
}

// actionFuncs are the functions of actions by name.
type actionFuncs map[string]func(context.Context, *action.Attempt) error

// doer runs named functions as actions and counts them.
type doer struct {
	mu   sync.Mutex // guards following
	runs map[string]int
	last map[string]time.Time // when it began
	do   map[string]func(ctx context.Context, at *action.Attempt) error
}

func (d *doer) Do(ctx context.Context, at *action.Attempt) error {
	d.mu.Lock()
	if d.runs == nil {
		d.runs, d.last = map[string]int{}, map[string]time.Time{}
	}
	d.last[at.Action.Name] = time.Now()
	d.runs[at.Action.Name]++
	f := d.do[at.Action.Name]
	d.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx, at)
}

func act(name string) trivet.Action { return trivet.Action{Name: name, Use: "noop"} }

var reboot = trivet.Action{Name: "reboot", Use: "reboot"}

func config(h *head, d *doer) Config {
	return Config{Client: h, Do: d.Do, Machine: "m", Token: "token", BootID: "boot"}
}

// runAgent runs an agent to its end.
func runAgent(t *testing.T, c Config) action.Ending {
	t.Helper()
	ending, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return ending
}

var errDown = fmt.Errorf("dial: %w", trivet.ErrUnavailable)

var errBroken = errors.New("broken")
