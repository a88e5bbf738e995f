package api_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/agent/installer"
	"github.com/trivet-project/trivet/internal/auth"
)

// executor runs actions as a test defines them, and counts them.
type executor struct {
	mu   sync.Mutex
	runs map[string]int // guarded by mu
	do   map[string]func(ctx context.Context) error
}

func (h *executor) Do(ctx context.Context, at *action.Attempt) error {
	h.mu.Lock()
	if h.runs == nil {
		h.runs = map[string]int{}
	}
	h.runs[at.Action.Name]++
	h.mu.Unlock()
	if do := h.do[at.Action.Name]; do != nil {
		return do(ctx)
	}
	return nil
}

func (h *executor) ran() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]int{}
	for name, n := range h.runs {
		out[name] = n
	}
	return out
}

// live runs a real agent of machine m1 that knows these heads, until ctx ends.
func (a *agent) live(ctx context.Context, h *executor, epoch int64, urls ...string) (ended <-chan action.Ending) {
	a.t.Helper()
	token := must(a.keys.SignBoot(auth.BootToken{Purpose: auth.PurposeBoot, Machine: "m1", MAC: agentMAC, Epoch: epoch,
		Expires: time.Now().Add(time.Hour)}))(a.t)
	c := must(client.New(client.Config{Endpoints: urls, Trust: a.keys.CA.Trust()}))(a.t)
	clock := &installer.Clock{}
	sign := func(req *http.Request, body []byte, machine string) {
		auth.SignRequest(req, body, machine, a.key, clock.Now())
	}
	end := make(chan action.Ending, 1)
	var running sync.WaitGroup
	running.Go(func() {
		ending, _ := installer.Run(ctx, installer.Config{ // its error is that ctx has ended
			Client: c.AgentAPI(sign, clock.Learn), Do: h.Do, Machine: "m1", MAC: agentMAC, Token: token,
			BootID: a.bootID, Clock: clock,
			Key: base64.StdEncoding.EncodeToString(a.key.Public().(ed25519.PublicKey)),
		})
		end <- ending
	})
	a.t.Cleanup(func() { running.Wait(); c.Close() })
	return end
}

// quick sets a short agent timeout, for frequent heartbeats.
func (h *head) quick() {
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Spec: trivet.SiteSpec{AgentTimeout: trivet.Duration(5 * time.Second)}})
}

// await returns once the workflow is in a state.
func (h *head) await(what string, is func(*trivet.Workflow) bool) trivet.WorkflowStatus {
	h.t.Helper()
	feed := h.fleet.Store.Watch(0, "Workflow")
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	for {
		w, err := h.fleet.Workflows.Get("default/p-1")
		if err == nil && is(w) {
			return w.Status
		}
		if _, err := feed.Next(ctx); err != nil {
			h.t.Fatalf("the workflow is not %s: %v %+v", what, err, w)
		}
	}
}

// faulty listens at the address of a stopped head, and applies a fault to each connection.
func (h *head) faulty(do func(net.Conn)) (heal func()) {
	h.t.Helper()
	l := must(net.Listen("tcp", strings.TrimPrefix(h.url, "https://")))(h.t)
	var open []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open = append(open, c)
			do(c)
		}
	}()
	return func() {
		l.Close()
		<-done
		for _, c := range open {
			c.Close()
		}
		h.listenAgain()
	}
}

// Heads fail in every way while an agent works, one after the other and all at once. The agent continues, runs no
// action twice, and each of its reports is applied once.
func TestAgentSurvivesHeadFailures(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for heads that are silent")
	}
	a := newAgent(t)
	a.quick()
	heads := []*head{a.head, a.twin(), a.twin()}
	var urls []string
	for _, h := range heads {
		urls = append(urls, h.url)
	}
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() }
	mute := func(net.Conn) {}
	allDown := func() (heal []func()) {
		for i, do := range []func(net.Conn){mute, reset, nil} {
			heads[i].server.Close()
			if do != nil {
				heal = append(heal, heads[i].faulty(do))
			} else {
				heal = append(heal, heads[i].listenAgain)
			}
		}
		return heal
	}
	h := &executor{do: map[string]func(context.Context) error{}}
	var actions []trivet.Action
	want := map[string]int{}
	for _, name := range []string{"first-mute", "second-reset", "third-away", "all", "alone", "last"} {
		actions = append(actions, trivet.Action{Name: name, Use: "noop"})
		want[name] = 1
	}
	oneDown := func(i int, do func(net.Conn)) func(context.Context) error {
		return func(ctx context.Context) error {
			heads[i].server.Close()
			heal := heads[i].listenAgain
			if do != nil {
				heal = heads[i].faulty(do)
			}
			err := sleepUntil(ctx, func() bool { return a.status().Acked > int64(2*i) }) // this action's first report
			heal()
			return err
		}
	}
	h.do["first-mute"], h.do["second-reset"], h.do["third-away"] = oneDown(0, mute), oneDown(1, reset), oneDown(2, nil)
	var heal []func()
	h.do["all"] = func(ctx context.Context) error { heal = allDown(); return nil }
	h.do["alone"] = func(ctx context.Context) error { // "all" has ended, and no head has its report
		if st := a.status(); st.Step("all").State == trivet.StepDone {
			t.Errorf("with all heads down the report was stored: %+v", st)
		}
		for _, heal := range heal {
			heal()
		}
		return nil
	}
	put(a.head, a.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: actions}})
	a.claim()
	ctx, stop := context.WithCancel(t.Context())
	a.live(ctx, h, 0, urls...)
	st := a.await("done", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	stop()
	if diff := cmp.Diff(want, h.ran()); diff != "" {
		t.Errorf("actions that ran:\n%s", diff)
	}
	if st.State != trivet.WorkflowSucceeded || st.Acked != int64(2*len(actions)) {
		t.Errorf("%+v", st)
	}
	for _, s := range st.Steps {
		if !trivet.IsBootStep(s.Name) && (s.Attempt != 1 || s.Failures != 0 || s.State != trivet.StepDone) {
			t.Errorf("%+v", s)
		}
	}
}

// Two agents register for one machine at two heads: the one with the newer epoch does the work, the older one stops
// during its action and its reports are refused.
func TestNewerOfTwoAgentsWins(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.quick()
	b := a.twin()
	b.fleet.AgentSilence = nil // this head believes that the older one is silent
	a.claim()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	began, stopped := make(chan struct{}), make(chan struct{})
	old := &executor{do: map[string]func(context.Context) error{"one": func(ctx context.Context) error {
		close(began)
		<-ctx.Done()
		close(stopped)
		return ctx.Err()
	}}}
	a.live(ctx, old, 0, a.url)
	<-began
	first := a.await("begun", func(w *trivet.Workflow) bool { return w.Status.Acked == 1 })

	newer := b.agent("boot-2")
	newerWork := &executor{}
	newer.live(ctx, newerWork, first.Epoch, b.url)
	last := b.await("done", func(w *trivet.Workflow) bool { return w.Status.State.Ended() })
	<-stopped
	if diff := cmp.Diff(map[string]int{"one": 1}, old.ran()); diff != "" {
		t.Errorf("the older agent ran:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"one": 1, "two": 1}, newerWork.ran()); diff != "" {
		t.Errorf("the newer agent ran:\n%s", diff)
	}
	if last.State != trivet.WorkflowSucceeded || last.Epoch <= first.Epoch {
		t.Errorf("%+v", last)
	}
	for _, h := range []*head{a.head, b} { // at both heads
		if _, err := (&agent{head: h, key: a.key, bootID: a.bootID}).sync(first.Epoch, 0,
			trivet.Report{Seq: 2, Action: "one", Attempt: 1, State: trivet.StepFailed}); !refusedFor(err, "401") {
			t.Errorf("the older agent at %s: %v", h.url, err)
		}
	}
	if now := a.status(); now.Acked != last.Acked || now.State != last.State {
		t.Errorf("%+v, then %+v", last, now)
	}
}

func sleepUntil(ctx context.Context, is func() bool) error {
	for !is() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// A head without a quorum refuses agents after a heartbeat, also one that waits for work there.
func TestHeadWithoutQuorumRefusesAgents(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.quick()
	go func() { _ = a.handler.Run(t.Context()) }() // ends with the test
	if g, err := a.hello(0); err != nil || g.Run != nil {
		t.Fatalf("hello: %+v, %v", g, err)
	}
	a.isCutOff.Store(true)
	for what, send := range map[string]func() (*trivet.Grant, error){
		"an agent that waits for work": func() (*trivet.Grant, error) { return a.sync(1, trivet.MaxWait.D()) },
		"a hello":                      func() (*trivet.Grant, error) { return a.hello(0) },
	} {
		err := sleepUntil(t.Context(), func() bool {
			_, err := send()
			return refusedFor(err, "503") && refusedFor(err, "no quorum")
		})
		if err != nil {
			t.Errorf("%s is served: %v", what, err)
		}
	}
	a.isCutOff.Store(false)
	if _, err := a.sync(1, 0); err != nil {
		t.Errorf("with a quorum again: %v", err)
	}
}

// An agent at work leaves a head that has no quorum.
func TestAgentLeavesHeadWithoutQuorum(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.quick()
	heads := []*head{a.head, a.twin()}
	served := func(h *head, path string) bool {
		return strings.Contains(h.log.String(), fmt.Sprintf(`"url":%q,"status":200`, path))
	}
	h := &executor{do: map[string]func(context.Context) error{"one": func(ctx context.Context) error {
		if served(heads[1], "/agent/v1/hello") {
			heads[0], heads[1] = heads[1], heads[0]
		}
		heads[0].isCutOff.Store(true)
		return sleepUntil(ctx, func() bool { return served(heads[1], "/agent/v1/sync") })
	}}}
	a.claim()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a.live(ctx, h, 0, heads[0].url, heads[1].url)
	if st := a.await("done", func(w *trivet.Workflow) bool { return w.Status.State.Ended() }); st.State !=
		trivet.WorkflowSucceeded || st.Resets != 0 {
		t.Errorf("%+v", st)
	}
	if !strings.Contains(heads[0].log.String(), "no quorum") {
		t.Errorf("the head that was cut off refused no agent:\n%s", heads[0].log)
	}
}

// A head that claims a machine whose idle agent another head heard relies on that agent: it has not been silent.
func TestClaimByHeadThatDidNotHearTheAgent(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	other := a.twin()
	if g, err := a.hello(0); err != nil || g.Run != nil {
		t.Fatalf("hello: %+v, %v", g, err)
	}
	put(a.head, a.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}})
	if err := other.fleet.Store.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.fleet.Claim(t.Context(), "default/p"); err != nil {
		t.Fatal(err)
	}
	w := must(other.fleet.Workflows.Get("default/p-1"))(t)
	if step := w.Status.Current(); trivet.IsBootStep(step.Name) || w.Status.Epoch != 2 {
		t.Errorf("the run begins with %s under epoch %d", step.Name, w.Status.Epoch)
	}
	if g, err := a.sync(1, time.Second); err != nil || g.Run == nil {
		t.Errorf("the idle agent gets %+v, %v", g, err)
	}
}
