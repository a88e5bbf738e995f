package api_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/store"
)

const agentMAC = "52:54:00:00:00:01"

// agent sends the requests of machine m1's agent.
type agent struct {
	*head
	key    ed25519.PrivateKey
	bootID string
	skew   time.Duration
}

// newAgent creates a head with a machine and a template, and the machine's agent, which has sent no request yet.
func newAgent(t *testing.T) *agent {
	h := newHead(t)
	put(h, h.fleet.Machines, &trivet.Machine{
		Meta: trivet.Meta{Name: "m1"}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: agentMAC}}},
		Status: trivet.MachineStatus{State: trivet.MachineAvailable},
	})
	put(h, h.fleet.MACs, &trivet.MAC{Meta: trivet.Meta{Name: agentMAC}, Spec: trivet.MACSpec{Machine: "m1"}})
	put(h, h.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{
			Actions: []trivet.Action{{Name: "one", Use: "noop"}, {Name: "two", Use: "noop"}}}})
	return h.agent("boot-1")
}

func (h *head) agent(bootID string) *agent {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return &agent{head: h, key: key, bootID: bootID}
}

// request returns a signed request.
func (a *agent) request(ctx context.Context, path string, in any) *http.Request {
	a.t.Helper()
	body := must(json.Marshal(in))(a.t)
	req := must(http.NewRequestWithContext(ctx, "POST", a.url+path, bytes.NewReader(body)))(a.t)
	auth.SignRequest(req, body, "m1", a.key, time.Now().Add(a.skew))
	return req
}

// awaitHeard returns once the head has received the agent's progress.
func (a *agent) awaitHeard() {
	for a.presence.Progress("m1") == nil {
		time.Sleep(time.Millisecond)
	}
}

// send sends a signed request, and returns the response, or an error with the status.
func (a *agent) send(path string, in any) (*trivet.Grant, error) {
	a.t.Helper()
	resp := must(a.http().Do(a.request(a.t.Context(), path, in)))(a.t)
	defer resp.Body.Close()
	text := must(io.ReadAll(resp.Body))(a.t)
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	g := new(trivet.Grant)
	return g, json.Unmarshal(text, g)
}

func (a *agent) hello(epoch int64) (*trivet.Grant, error) {
	a.t.Helper()
	return a.send("/agent/v1/hello", a.helloOf(epoch))
}

func (a *agent) helloOf(epoch int64) *trivet.Hello {
	a.t.Helper()
	token := must(a.keys.SignBoot(auth.BootToken{Purpose: auth.PurposeBoot, Machine: "m1", MAC: agentMAC, Epoch: epoch,
		Expires: time.Now().Add(time.Hour)}))(a.t)
	return &trivet.Hello{Machine: "m1", MAC: agentMAC, Token: token, BootID: a.bootID,
		Key: base64.StdEncoding.EncodeToString(a.key.Public().(ed25519.PublicKey))}
}

func (a *agent) sync(epoch int64, wait time.Duration, reports ...trivet.Report) (*trivet.Grant, error) {
	a.t.Helper()
	return a.send("/agent/v1/sync", &trivet.Sync{Machine: "m1", Epoch: epoch, BootID: a.bootID, Reports: reports,
		Wait: trivet.Duration(wait)})
}

func (a *agent) claim() {
	a.t.Helper()
	put(a.head, a.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}})
	if err := a.fleet.Claim(a.t.Context(), "default/p"); err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) status() trivet.WorkflowStatus {
	return must(a.fleet.Workflows.Get("default/p-1"))(a.t).Status
}

func refusedFor(err error, word string) bool {
	return err != nil && strings.Contains(err.Error(), word)
}

// An agent that waits for work gets it in the response to the pending request when its machine is claimed.
func TestWaitingAgentGetsItsRun(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	go func() { _ = a.handler.Run(t.Context()) }() // ends with the test
	g, err := a.hello(0)
	if err != nil || g.Run != nil || g.Epoch != 1 || g.Interval <= 0 {
		t.Fatalf("hello: %+v, %v", g, err)
	}
	var got *trivet.Grant
	done := make(chan error, 1)
	go func() {
		var err error
		got, err = a.send("/agent/v1/sync", &trivet.Sync{Machine: "m1", BootID: a.bootID, Wait: trivet.MaxWait,
			Progress: &trivet.Progress{Action: "waiting"}})
		done <- err
	}()
	a.awaitHeard()
	a.claim()
	claimed := a.fleet.Store.Revision()
	if err := <-done; err != nil || got.Run == nil || got.Run.Workflow != "p-1" || got.Epoch != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if now := a.fleet.Store.Revision(); now != claimed { // the claim granted the run
		t.Errorf("the agent's request wrote to the store: revision %d after %d", now, claimed)
	}
}

// An agent that disconnects while it waits is no failure of the head.
func TestWaitingAgentDisconnects(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	go func() { _ = a.handler.Run(t.Context()) }() // ends with the test
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	req := a.request(ctx, "/agent/v1/sync", &trivet.Sync{Machine: "m1", Epoch: 1, BootID: a.bootID,
		Wait:     trivet.MaxWait,
		Progress: &trivet.Progress{Action: "waiting"}})
	done := make(chan error, 1)
	go func() {
		_, err := a.http().Do(req)
		done <- err
	}()
	a.awaitHeard()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for range 2000 { // the head notices it a little later
		_, got := a.ask(a.admin, "GET", "/metrics", "")
		if text := fmt.Sprint(got["text"]); strings.Contains(text,
			`trivet_api_requests_total{route="POST /agent/v1/sync"`) {
			if !strings.Contains(text, `route="POST /agent/v1/sync",status="499"} 1`) {
				t.Errorf("counted as something else:\n%s", text)
			}
			if text := a.log.String(); strings.Contains(text, "ERROR") {
				t.Errorf("the log has an error:\n%s", text)
			}
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Error("the request does not end")
}

// Reports are applied once, in order, under their epoch, and from the agent that was granted it.
func TestReportsAreAppliedOnce(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	g, err := a.hello(0)
	if err != nil || g.Run == nil || g.Acked != 0 {
		t.Fatalf("hello: %+v, %v", g, err)
	}
	if again, err := a.hello(0); err != nil || again.Epoch != g.Epoch || again.Run == nil {
		t.Errorf("the response was lost and hello is sent again: %+v, %v", again, err)
	}
	one := trivet.Report{Seq: 1, Action: "one", Attempt: 1, State: trivet.StepDone}
	for range 2 {
		if got, err := a.sync(g.Epoch, 0, one); err != nil || got.Acked != 1 || got.Run != nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
	written := a.fleet.Store.Revision()
	for range 3 { // a copy, and heartbeats
		if _, err := a.sync(g.Epoch, 0, one); err != nil {
			t.Error(err)
		}
		if _, err := a.sync(g.Epoch, 0); err != nil {
			t.Error(err)
		}
	}
	if now := a.fleet.Store.Revision(); now != written {
		t.Errorf("%d writes for nothing new", now-written)
	}
	if _, err := a.sync(g.Epoch-1, 0, trivet.Report{Seq: 2, Action: "two", Attempt: 1,
		State: trivet.StepDone}); !refusedFor(err, "fenced") {
		t.Errorf("reports of an older epoch: %v", err)
	}
	if st := a.status(); st.Acked != 1 || st.State != trivet.WorkflowRunning {
		t.Errorf("%+v", st)
	}
}

// The report that ends the run, and with it the agent's epoch and key, is accepted like any other.
func TestLastFailingReportIsAccepted(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	g, err := a.hello(0)
	if err != nil || g.Run == nil {
		t.Fatalf("hello: %+v, %v", g, err)
	}
	failed := trivet.Report{Seq: 1, Action: "one", Attempt: 1, State: trivet.StepFailed, Final: true, Cause: "no disk"}
	got, err := a.sync(g.Epoch, 0, failed)
	if err != nil || got.Order != trivet.OrderStop || got.Run != nil || got.Epoch <= g.Epoch {
		t.Errorf("%+v, %v", got, err)
	}
	if st := a.status(); st.Acked != 1 || st.State != trivet.WorkflowFailed {
		t.Errorf("%+v", st)
	}
	if _, err := a.sync(g.Epoch, 0); !refusedFor(err, "401") {
		t.Errorf("a sync after it: %v", err)
	}
}

// A machine that boots again has a new agent; requests of the old one are then refused.
func TestReplacedAgentIsRefused(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	a.fleet.AgentSilence = nil
	old, err := a.hello(0)
	if err != nil {
		t.Fatal(err)
	}
	b := a.head.agent("boot-2")
	if _, err := b.hello(0); !refusedFor(err, "new one") {
		t.Errorf("a spent token: %v", err)
	}
	g, err := b.hello(old.Epoch)
	if err != nil || g.Run == nil || g.Epoch != old.Epoch+1 {
		t.Fatalf("%+v, %v", g, err)
	}
	if _, err := a.sync(old.Epoch, 0, trivet.Report{Seq: 1, Action: "one", Attempt: 1,
		State: trivet.StepDone}); !refusedFor(err, "401") {
		t.Errorf("the old agent: %v", err)
	}
	if st := a.status(); st.Acked != 0 || st.Epoch != g.Epoch {
		t.Errorf("%+v", st)
	}
}

func TestAgentAuthentication(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	if _, err := a.sync(0, 0); !refusedFor(err, "401") {
		t.Errorf("an agent that never sent a hello: %v", err)
	}
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	liar := a.head.agent(a.bootID)
	if _, err := liar.sync(0, 0); !refusedFor(err, "401") {
		t.Errorf("another key: %v", err)
	}
	a.skew = -time.Hour
	if _, err := a.sync(0, 0); !refusedFor(err, "skew") && !refusedFor(err, "clock") {
		t.Errorf("a clock that is an hour behind: %v", err)
	}
	a.skew = 0
	if _, err := a.sync(0, 0); err != nil {
		t.Error(err)
	}
}

// A hello is signed by the key that it registers: a public key that was seen elsewhere is of no use.
func TestUnsignedHelloIsRefused(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	other := a.head.agent("boot-1")
	for name, sign := range map[string]func(r *http.Request, body []byte){
		"none":        func(*http.Request, []byte) {},
		"another key": func(r *http.Request, body []byte) { auth.SignRequest(r, body, "m1", other.key, time.Now()) },
	} {
		body := must(json.Marshal(a.helloOf(0)))(t)
		req := must(http.NewRequestWithContext(t.Context(), "POST", a.url+"/agent/v1/hello",
			bytes.NewReader(body)))(t)
		sign(req, body)
		resp := must(a.http().Do(req))(t)
		resp.Body.Close()
		if m := must(a.fleet.Machines.Get("m1"))(t); resp.StatusCode != http.StatusUnauthorized ||
			m.Status.AgentKey != "" {
			t.Errorf("signature %s: %s, %+v", name, resp.Status, m.Status)
		}
	}
}

// A hello is bounded: it comes from machines that no one knows.
func TestLargeHelloIsRefused(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	hello := a.helloOf(0)
	for range 2000 {
		hello.Inventory.Disks = append(hello.Inventory.Disks, trivet.Disk{Name: "/dev/sda", Serial: "S"})
	}
	if _, err := a.send("/agent/v1/hello", hello); !refusedFor(err, "413") {
		t.Errorf("with 2000 disks: %v", err)
	}
	hello.Inventory.Shorten(trivet.MaxHello - 4<<10)
	if _, err := a.send("/agent/v1/hello", hello); err != nil || len(hello.Inventory.Disks) < 500 {
		t.Errorf("with %d disks: %v", len(hello.Inventory.Disks), err)
	}
}

// An active machine whose agent boots by an old script is ordered to boot its disk, and is granted nothing.
func TestActiveMachineIsOrderedToBootItsDisk(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	_, err := a.fleet.Store.Update(t.Context(), func(tx *store.Tx) error {
		m, err := a.fleet.Machines.In(tx).Get("m1")
		if err != nil {
			return err
		}
		m.Status.State = trivet.MachineActive
		return a.fleet.Machines.In(tx).Put(m)
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := a.hello(0)
	if err != nil || g.Run != nil || g.Order != trivet.OrderBoot || g.Cause == "" {
		t.Errorf("%+v, %v", g, err)
	}
	if m, err := a.fleet.Machines.Get("m1"); err != nil || m.Status.State != trivet.MachineActive {
		t.Error(errors.Join(err, fmt.Errorf("it is %s", m.Status.State)))
	}
}

// So is one whose run has only its first boot left, by the script of a head that had not yet received the last report.
func TestMachineAtFirstBootIsOrderedToBootItsDisk(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	g, err := a.hello(0)
	if err != nil || g.Run == nil {
		t.Fatalf("%+v, %v", g, err)
	}
	_, err = a.fleet.Store.Update(t.Context(), func(tx *store.Tx) error {
		w, err := a.fleet.Workflows.In(tx).Get("default/p-1")
		if err != nil {
			return err
		}
		w.Status.State = trivet.WorkflowStarting
		return a.fleet.Workflows.In(tx).Put(w)
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err = a.agent("boot-2").hello(g.Epoch)
	if err != nil || g.Run != nil || g.Order != trivet.OrderBoot || g.Cause == "" {
		t.Errorf("%+v, %v", g, err)
	}
}

// What an agent reports to an overloaded head is not acknowledged, and no error, so that it does not connect to another
// head: it sends it again.
func TestReportsOfOverloadedHeadAreDelayed(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	overloaded := fmt.Errorf("update: %w", store.ErrOverloaded)
	a.refuse.Store(&overloaded)
	report := trivet.Report{Seq: 1, Action: "one", Attempt: 1, State: trivet.StepRunning}
	if g, err := a.sync(1, 0, report); err != nil || g.Acked != 0 || g.Order != trivet.OrderNone {
		t.Errorf("while transactions wait: %+v, %v", g, err)
	}
	a.awaitMetric("trivet_api_delayed_reports_total 1")
	unavailable := fmt.Errorf("update: %w", trivet.ErrUnavailable)
	a.refuse.Store(&unavailable)
	if g, err := a.sync(1, 0, report); err == nil || !strings.HasPrefix(err.Error(), "503") {
		t.Errorf("while the head cannot write: %+v, %v", g, err)
	}
	a.refuse.Store(nil)
	if g, err := a.sync(1, 0, report); err != nil || g.Acked != 1 {
		t.Errorf("afterwards: %+v, %v", g, err)
	}
}

// What an agent reports too often is not acknowledged, and no error: it sends it again. It is heard all the same.
func TestFloodOfReportsIsDelayed(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.claim()
	if _, err := a.hello(0); err != nil {
		t.Fatal(err)
	}
	report := trivet.Report{Seq: 1, Action: "one", Attempt: 1, State: trivet.StepRunning}
	delayed := false
	for range 20 { // a busy computer may take so long that one is accepted
		for a.fleet.Report(t.Context(), &trivet.Sync{Machine: "m1", Epoch: 1, BootID: a.bootID,
			Reports: []trivet.Report{report}}) == nil {
			report.Seq++
		}
		g, err := a.sync(1, 0, report)
		if err != nil || g.Order != trivet.OrderNone {
			t.Fatalf("the sync of report %d: %+v, %v", report.Seq, g, err)
		}
		if delayed = g.Acked == report.Seq-1; delayed {
			break
		}
		report.Seq++
	}
	if !delayed {
		t.Error("all reports are acknowledged")
	}
	a.awaitMetric("trivet_api_delayed_reports_total 1")
	for acked := int64(0); acked < report.Seq; { // later
		g, err := a.sync(1, 0, report)
		if err != nil {
			t.Fatal(err)
		}
		acked = g.Acked
	}
}
