package fleet_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// commands are what an operator can do about a machine and its provision, as the document has them; events are what
// happens to them besides. A command that needs a provision, or a run, is not tried without.
var commands = []struct{ name, text string }{
	{"accept", "trivet accept"},
	{"quarantine", "trivet quarantine"},
	{"check", "trivet check"},
	{"claim", "trivet provision"},
	{"delete", "trivet delete provision"},
	{"pause", "trivet pause"},
	{"resume", "trivet resume"},
	{"retry", "trivet retry"},
	{"retry-here", "trivet retry --same-machine --accept"},
	{"retry-step", "trivet retry --accept --step"},
	{"replace", "trivet replace --wait"},
	{"redeploy", "trivet redeploy"},
}

var events = []string{"boot", "sync", "step", "report", "broken", "expire", "reset", "phone-home", "off"}

// place is a state of a machine, its provision and its run together, as a walk reaches it.
type place struct {
	machine, provision, run string
	intent                  string   // the power request that is pending
	path                    []string // one that leads there
}

func (p *place) key() string {
	return strings.Join([]string{p.machine, p.provision, p.run, p.intent}, "|")
}

// free reports whether the machine can be used for anything.
func (p *place) free() bool { return p.machine == "available" && p.provision == "-" }

// walk goes to places, each time with a machine of its own.
type walk struct {
	*rack
	number int
}

func (w *walk) to(path []string) *subject {
	w.Helper()
	w.upgraded(trivet.CurrentRelease) // and forgets machines whose BMCs have failed: the site is not at fault
	w.number++
	m := w.newMachine(w.number)
	for _, step := range path {
		if err := m.try(step); err != nil {
			w.Fatalf("%v: %s: %v", path, step, err)
		}
	}
	return m
}

// try does a command or lets an event happen.
func (s *subject) try(what string) error {
	ctx, name := s.Context(), "default/"+s.provision
	switch what {
	case "claim":
		if _, err := s.Provisions.Get(name); err == nil {
			return trivet.ErrExists
		}
	case "pause":
		return s.Pause(ctx, name, "op")
	case "resume":
		return s.Resume(ctx, name, "op")
	case "retry":
		err := s.Retry(ctx, name, trivet.RetryRequest{}, "op")
		if err == nil {
			err = s.Claim(ctx, name)
		}
		return err
	case "retry-here", "retry-step":
		req := trivet.RetryRequest{SameMachine: true, Accept: true}
		if what == "retry-step" {
			req = trivet.RetryRequest{Step: "work", Accept: true}
		}
		err := s.Retry(ctx, name, req, "op")
		s.runs = s.runs && err != nil // the operator has accepted it
		return err
	}
	if what == "replace" {
		return s.Replace(ctx, name, trivet.ReplaceRequest{Wait: true}, "op")
	}
	return s.happens(what)
}

func (s *subject) happens(event string) error {
	m := s.get()
	sync := &trivet.Sync{Machine: s.name, Epoch: m.Status.Epoch, BootID: m.Status.BootID}
	switch event {
	case "sync":
		return s.GrantIdle(s.Context(), s.name, m.Status.AgentKey)
	case "step":
		sync.Reports = []trivet.Report{{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone}}
		return s.Report(s.Context(), sync)
	case "broken":
		sync.Reports = []trivet.Report{{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepFailed, Final: true}}
		return s.Report(s.Context(), sync)
	case "reset":
		return s.ReachBootStep(s.Context(), s.name, trivet.StepScript, m.Status.Epoch)
	}
	return s.do(event)
}

// here returns where the machine is.
func (s *subject) here(path []string) *place {
	m := s.get()
	p := &place{machine: string(m.Status.State), provision: "-", run: "-", path: path}
	if m.Status.State == trivet.MachineQuarantined {
		p.machine += ", was " + string(m.Status.Former)
	}
	if m.Status.Intent != nil {
		p.intent = m.Status.Intent.Want
	}
	pr, err := s.Provisions.Get("default/" + s.provision)
	if err != nil {
		return p
	}
	p.provision = string(pr.Status.State)
	if pr.Status.Paused != nil {
		p.provision += ", paused"
	}
	if run, err := s.Workflows.Get("default/" + pr.Status.Workflow); err == nil && !run.Status.State.Ended() {
		p.run = string(run.Status.State)
		if workflow.RunsFormer(&m.Status, run) {
			p.machine += ", was active"
		}
	}
	return p
}

// possible leaves out what cannot be done at a place, whatever its history.
func (p *place) possible(what string) bool {
	switch what {
	case "claim":
		return p.provision == "-"
	case "delete", "pause", "resume", "retry", "retry-here", "retry-step", "replace", "redeploy":
		return p.provision != "-"
	case "step", "report", "broken", "expire", "phone-home", "reset":
		return p.run != "-"
	case "off":
		return p.intent == "off"
	}
	return true
}

// Every state of a machine, its provision and its run that commands and events lead to can be left by commands: after
// some of them the machine is available, and belongs to no provision. The document lists them.
func TestEveryStateHasAWayOut(t *testing.T) {
	t.Parallel()
	w := &walk{rack: newRack(t)}
	all, edges := w.explore()
	if len(all) < 30 {
		t.Errorf("the walk reached %d states only", len(all))
	}
	rows := map[string][]string{}
	for _, p := range all {
		way := wayOut(p, edges, all)
		m := w.to(p.path)
		for _, command := range way {
			if err := m.try(command); err != nil {
				t.Errorf("%s, reached by %v: %s of the way out %v: %v", p.key(), p.path, command, way, err)
			}
		}
		m.check(fmt.Sprint(p.path, way))
		if end := m.here(nil); !end.free() {
			t.Errorf("%s, reached by %v: there is no way out; after %v: %s", p.key(), p.path, way, end.key())
		}
		row := strings.Join([]string{p.machine, p.provision, p.run}, "|")
		for _, c := range commands {
			if to, ok := edges[p.key()][c.name]; ok && to != p.key() && !slices.Contains(rows[row], c.text) {
				rows[row] = append(rows[row], c.text)
			}
		}
		if out := texts(way); !slices.Contains(rows[row], "> "+out) {
			rows[row] = append(rows[row], "> "+out)
		}
	}
	compareWithDocument(t, rows)
}

// explore reaches every state that commands and events lead to. edges has, by state and command or event, where it
// leads.
func (w *walk) explore() (all map[string]*place, edges map[string]map[string]string) {
	begin := w.to(nil).here(nil)
	all, edges = map[string]*place{begin.key(): begin}, map[string]map[string]string{}
	for queue := []*place{begin}; len(queue) > 0; queue = queue[1:] {
		from := queue[0]
		edges[from.key()] = map[string]string{}
		for _, what := range tries() {
			if !from.possible(what) {
				continue
			}
			m := w.to(from.path)
			if m.try(what) != nil {
				continue
			}
			m.check(fmt.Sprint(from.path, " ", what))
			to := m.here(append(slices.Clone(from.path), what))
			edges[from.key()][what] = to.key()
			if all[to.key()] == nil {
				all[to.key()] = to
				queue = append(queue, to)
			}
		}
	}
	return all, edges
}

func tries() (all []string) {
	for _, c := range commands {
		all = append(all, c.name)
	}
	return append(all, events...)
}

// wayOut returns the fewest commands that lead from a state to a free machine; nil where none do.
func wayOut(from *place, edges map[string]map[string]string, all map[string]*place) []string {
	type at struct {
		key string
		way []string
	}
	seen := map[string]bool{from.key(): true}
	for queue := []at{{from.key(), nil}}; len(queue) > 0; queue = queue[1:] {
		now := queue[0]
		if all[now.key].free() {
			return now.way
		}
		for _, c := range commands {
			to, ok := edges[now.key][c.name]
			if ok && !seen[to] {
				seen[to] = true
				queue = append(queue, at{to, append(slices.Clone(now.way), c.name)})
			}
		}
	}
	return nil
}

func texts(way []string) string {
	var all []string
	for _, name := range way {
		for _, c := range commands {
			if c.name == name {
				all = append(all, c.text)
			}
		}
	}
	return strings.Join(all, ", ")
}

const (
	statesDocument = "../../docs/states.md"
	tableBegin     = "<!-- by TestEveryStateHasAWayOut -->\n"
)

// compareWithDocument compares the table of the document with what the walk found, or writes it.
func compareWithDocument(t *testing.T, rows map[string][]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(tableBegin)
	b.WriteString("| Machine | Provision | Run | Commands that change something | To an available machine |\n")
	b.WriteString("|---|---|---|---|---|\n")
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		var does, out []string
		for _, text := range rows[row] {
			if way, ok := strings.CutPrefix(text, "> "); ok {
				out = append(out, way)
			}
		}
		for _, c := range commands {
			if slices.Contains(rows[row], c.text) {
				does = append(does, strings.TrimPrefix(c.text, "trivet "))
			}
		}
		slices.SortFunc(out, func(a, b string) int { return len(a) - len(b) })
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.ReplaceAll(row, "|", " | "), strings.Join(does, "; "),
			strings.ReplaceAll(out[len(out)-1], "trivet ", ""))
	}
	text, err := os.ReadFile(statesDocument)
	if err != nil {
		t.Fatal(err)
	}
	before, _, _ := strings.Cut(string(text), tableBegin)
	if want := before + b.String(); want != string(text) {
		if os.Getenv("UPDATE") == "" {
			t.Fatalf("%s has another table; write it again with UPDATE=1", statesDocument)
		}
		if err := os.WriteFile(statesDocument, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
