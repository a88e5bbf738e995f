package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/lab/grade"
)

// Summary is the result of a demo. Its JSON is one line.
type Summary struct {
	Machines      int     `json:"machines"`
	Provisioned   int     `json:"provisioned"`
	Failed        int     `json:"failed"`
	Repeated      int     `json:"actionsRepeated"`
	Seconds       float64 `json:"seconds"`
	*Faults               // nil: no head was killed
	*grade.Result         // nil: not the scenario "faults"
}

// tracker watches all provisions and displays their progress.
type tracker struct {
	demo    *Demo
	client  *client.Client
	names   []string
	mu      sync.Mutex
	states  map[string]string // guarded by mu; by provision
	steps   map[string]string // guarded by mu; running step by provision
	failed  map[string]bool   // guarded by mu; runs
	history *json.Encoder     // guarded by mu
	file    *os.File
	shown   time.Time
	lines   int
	seen    *grade.Observer      // notes the runs; nil: none
	ends    map[string]time.Time // guarded by mu; when the end of each provision was seen
}

func newTracker(d *Demo, c *client.Client, names []string) (*tracker, error) {
	b := &tracker{demo: d, client: c, names: names, states: map[string]string{},
		steps: map[string]string{}, failed: map[string]bool{}, ends: map[string]time.Time{}}
	if d.History == "" {
		return b, nil
	}
	var err error
	if b.file, err = os.Create(d.History); err != nil {
		return nil, err
	}
	b.history = json.NewEncoder(b.file)
	return b, nil
}

func (b *tracker) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}

// watch returns when every provision has ended, or with the context.
func (b *tracker) watch(ctx context.Context) error {
	opts := client.WatchOptions{Kinds: []trivet.Kind{"Provision", "Workflow", "Event"}}
	for e, err := range b.client.Watch(ctx, opts) {
		if err != nil {
			return b.timeoutError(ctx, err)
		}
		b.note(e)
		all := b.ended() == len(b.names)
		b.draw(all)
		if all {
			return nil
		}
	}
	return b.timeoutError(ctx, ctx.Err())
}

func (b *tracker) timeoutError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %d of %d had ended after %s", ErrIncomplete, b.ended(), len(b.names), b.demo.Timeout)
	}
	return err
}

func (b *tracker) note(e client.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch r := e.Record.(type) {
	case *trivet.Provision:
		b.states[r.Name] = string(r.Status.State)
		if r.Status.State.Ended() {
			b.ends[r.Name] = time.Now()
		}
		b.write("write", r.Revision, r.Name, string(r.Status.State))
	case *trivet.Workflow:
		if b.seen != nil {
			b.seen.Note(r, time.Now())
		}
		b.steps[r.Spec.Provision] = ""
		if s := r.Status.Current(); s != nil {
			b.steps[r.Spec.Provision] = s.Name
		}
		if r.Status.State == trivet.WorkflowFailed || r.Status.State == trivet.WorkflowCancelled {
			b.failed[r.Name] = true
		}
		b.write("write", r.Revision, r.Name, string(r.Status.State)+" "+b.steps[r.Spec.Provision])
	case *trivet.Event:
		b.write("event", r.Revision, r.Spec.Subject, r.Spec.Reason+" "+r.Spec.Step)
	}
}

// write adds a change of a record to the history.
func (b *tracker) write(what string, revision int64, subject, text string) {
	b.encode(map[string]any{"what": what, "revision": revision, "subject": subject, "text": text})
}

// line adds another entry to the history.
func (b *tracker) line(fields map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.encode(fields)
}

func (b *tracker) encode(fields map[string]any) {
	if b.history != nil {
		fields["time"] = time.Now().UTC().Format(time.RFC3339Nano)
		_ = b.history.Encode(fields)
	}
}

// acting returns how many machines are running an action.
func (b *tracker) acting() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, step := range b.steps {
		if b.states[name] == string(trivet.ProvisionRunning) && step != "" && !slices.Contains(trivet.BootSteps, step) {
			n++
		}
	}
	return n
}

func (b *tracker) failedRuns() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.failed)
}

func (b *tracker) count(state trivet.ProvisionState) (n int) {
	for _, s := range b.states {
		if s == string(state) {
			n++
		}
	}
	return n
}

func (b *tracker) ended() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count(trivet.ProvisionSucceeded) + b.count(trivet.ProvisionFailed)
}

// endTimes returns when the end of each provision was seen.
func (b *tracker) endTimes() map[string]time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.ends)
}

func (b *tracker) summary(took time.Duration) Summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Summary{
		Machines: len(b.names), Provisioned: b.count(trivet.ProvisionSucceeded),
		Failed:  len(b.names) - b.count(trivet.ProvisionSucceeded),
		Seconds: float64(took.Round(time.Millisecond)) / float64(time.Second),
	}
}

// draw displays the number of machines in each step, at most five times a second.
func (b *tracker) draw(last bool) {
	if b.demo.JSON || !last && time.Since(b.shown) < 200*time.Millisecond {
		return
	}
	b.shown = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	at := map[string]int{}
	for name, step := range b.steps {
		if step != "" && b.states[name] == string(trivet.ProvisionRunning) {
			at[step]++
		}
	}
	var out strings.Builder
	if b.lines > 0 {
		fmt.Fprintf(&out, "\x1b[%dA", b.lines)
	}
	steps := []string{"power-on", "dhcp", "boot-script", "kernel", "hello", "wipe", "image", "motd", "rest", "seed",
		"reboot", "first-boot"}
	for _, step := range steps {
		fmt.Fprintf(&out, "\x1b[K%12s %s\n", step, bar(at[step]))
	}
	fmt.Fprintf(&out, "\x1b[K%12s %s\n", "active", bar(b.count(trivet.ProvisionSucceeded)))
	b.lines = len(steps) + 1
	_, _ = io.WriteString(b.demo.Out, out.String())
}

func bar(n int) string {
	if n == 0 {
		return ""
	}
	return strings.Repeat("█", min(n, 60)) + fmt.Sprintf(" %d", n)
}

// repeated returns the number of acknowledged actions that ran again, according to the machines' journals.
func repeated(dir string, names []string, err error) (int, error) {
	n := 0
	for _, name := range names {
		entries, readErr := journal.Read((&Machine{Name: name, Dir: dir}).JournalPath())
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		n += repeats(entries)
	}
	return n, err
}

// repeats returns the number of attempts, in one journal, of actions that had been acknowledged as done before.
func repeats(entries []journal.Entry) int {
	type key struct{ workflow, action string }
	acked := map[key]bool{}
	done := map[int64]key{} // by report number, under the newest epoch
	var epoch int64
	workflow, n := "", 0
	for _, e := range entries {
		switch {
		case e.Report == nil && e.Acked == 0:
			workflow, epoch, done = e.Workflow, e.Epoch, map[int64]key{}
		case e.Epoch != epoch:
		case e.Report == nil:
			for _, seq := range slices.Collect(maps.Keys(done)) {
				if seq <= e.Acked {
					acked[done[seq]] = true
				}
			}
		case e.Report.State == trivet.StepDone:
			done[e.Report.Seq] = key{workflow, e.Report.Action}
		case e.Report.State == trivet.StepRunning && acked[key{workflow, e.Report.Action}]:
			n++
		}
	}
	return n
}
