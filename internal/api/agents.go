package api

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// The agents' door. An agent proves itself by the key that its hello registered, in every request; the hello itself by the
// token of its boot script, and that it has the key by signing with it.

// maxSkew is how far an agent's idea of the time may be off.
const maxSkew = 2 * time.Minute

// agentPath begins the paths of the door.
const agentPath = "/agent/"

func (h *Handler) agentRoutes() {
	grant := reflect.TypeFor[trivet.Grant]()
	h.add(route{method: "POST", path: "/agent/v1/hello", summary: "An agent's first word: spends its boot token, registers its key",
		in: reflect.TypeFor[trivet.Hello](), out: grant, serve: h.agentHello})
	h.add(route{method: "POST", path: "/agent/v1/sync", summary: "An agent's reports and heartbeat; an idle one waits for work",
		in: reflect.TypeFor[trivet.Sync](), out: grant, serve: h.agentSync})
	h.add(route{method: "POST", path: "/agent/v1/logs", summary: "A piece of what an action wrote",
		query: []string{"workflow: whose", "action: whose", "attempt: which, from 1", "offset: where the piece begins, in bytes"},
		media: "application/octet-stream", in: reflect.TypeFor[[]byte](), status: http.StatusNoContent, serve: h.agentLogs})
}

func (h *Handler) agentHello(w http.ResponseWriter, r *http.Request, _ *caller) error {
	body, err := readBody(w, r, auth.MaxSignedBody)
	if err != nil {
		return err
	}
	var hello trivet.Hello
	if err := json.Unmarshal(body, &hello); err != nil { // lenient: the agent may be of another version
		return fmt.Errorf("hello: %w: %w", trivet.ErrInvalid, err)
	}
	key, err := publicKey(hello.Key)
	if err != nil {
		return err
	}
	if hello.BootID == "" || len(hello.BootID) > 128 {
		return &trivet.FieldError{Field: "bootID", Problem: "is missing or too long"}
	}
	if r.Header.Get("Authorization") != "" { // a signed hello proves that the agent has the key
		own := func(string) (ed25519.PublicKey, error) { return key, nil }
		if _, err := auth.VerifyRequest(r, body, own, h.Now(), maxSkew); err != nil {
			return err
		}
	}
	token, err := h.Keys.VerifyBoot(auth.PurposeBoot, hello.Token, h.Now())
	if err != nil {
		return err
	}
	name, err := h.Fleet.Hello(r.Context(), &hello, token)
	if err != nil {
		return err
	}
	about(r.Context()).account = "machine/" + name
	m, err := h.Fleet.Machines.GetShared(name)
	if err != nil {
		return err
	}
	h.Presence.Record(name, m.Status.Epoch, nil)
	g := h.grantOf(m, 0)
	if g.Run == nil && h.isInstalled(m) {
		g.Order, g.Cause = trivet.OrderBoot, "the machine is installed and has nothing else to do here"
	}
	return answer(w, http.StatusOK, g)
}

// isInstalled says whether the machine is to run its own system. Its agent is here by the boot script of a head that did not
// know yet, a moment after the last report.
func (h *Handler) isInstalled(m *trivet.Machine) bool {
	w, err := h.Fleet.Workflows.GetShared(m.Status.Workflow)
	return m.Status.State == trivet.MachineActive || err == nil && w.Status.State == trivet.WorkflowStarting
}

func (h *Handler) agentSync(w http.ResponseWriter, r *http.Request, _ *caller) error {
	w.(*recorder).quiet = true
	body, err := readBody(w, r, auth.MaxSignedBody)
	if err != nil {
		return err
	}
	var s trivet.Sync
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("sync: %w: %w", trivet.ErrInvalid, err)
	}
	if len(s.Reports) > trivet.MaxReports {
		return fmt.Errorf("sync: %w: %d reports; at most %d", trivet.ErrTooLarge, len(s.Reports), trivet.MaxReports)
	}
	m, err := h.agent(r, body, s.Machine)
	if err != nil {
		return err
	}
	g, err := h.sync(r.Context(), m, &s)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, g)
}

// agent proves who signed a request. A key that this head does not know may be one that another head has just registered.
func (h *Handler) agent(r *http.Request, body []byte, machine string) (*trivet.Machine, error) {
	err := h.verify(r, body, machine)
	if errors.Is(err, trivet.ErrUnauthenticated) && !errors.Is(err, trivet.ErrClockSkew) {
		if err := h.fresh(r.Context()); err != nil {
			return nil, err // it cannot be told now; an agent does not stop for that
		}
		err = h.verify(r, body, machine)
	}
	if err != nil {
		return nil, err
	}
	about(r.Context()).account = "machine/" + machine
	return h.Fleet.Machines.GetShared(machine)
}

func (h *Handler) verify(r *http.Request, body []byte, machine string) error {
	agent, err := auth.VerifyRequest(r, body, func(name string) (ed25519.PublicKey, error) {
		m, err := h.Fleet.Machines.GetShared(name)
		if err != nil || m.Status.AgentKey == "" {
			return nil, fmt.Errorf("machine %s: %w: no agent is registered", name, trivet.ErrUnauthenticated)
		}
		return publicKey(m.Status.AgentKey)
	}, h.Now(), maxSkew)
	if err == nil && agent.Machine != machine {
		return fmt.Errorf("%w: the agent of %s speaks for %s", trivet.ErrForbidden, agent.Machine, machine)
	}
	return err
}

// sync takes what an agent says, and holds the answer for an idle one until there is work or its patience ends.
func (h *Handler) sync(ctx context.Context, m *trivet.Machine, s *trivet.Sync) (*trivet.Grant, error) {
	key := m.Status.AgentKey
	until := h.Now().Add(min(s.Wait, trivet.MaxWait).D())
	for {
		changed := h.waiting.on(m.Name) // before the look, so that no change falls in between
		if err := h.look(ctx, &m, key, s); err != nil {
			return nil, err
		}
		g := h.grantOf(m, s.Epoch)
		left := until.Sub(h.Now())
		if g.Run != nil || len(s.Reports) > 0 || left <= 0 {
			return g, nil
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-h.drain:
			until = h.Now()
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// look reads the machine afresh, takes what the agent says, and leaves in m what is there then.
func (h *Handler) look(ctx context.Context, m **trivet.Machine, key string, s *trivet.Sync) (err error) {
	for range 2 {
		if *m, err = h.machineOf(ctx, (*m).Name, s.Epoch); err != nil {
			return err
		}
		if (*m).Status.AgentKey != key {
			return fmt.Errorf("sync: %w: the agent was replaced", trivet.ErrFenced)
		}
		h.Presence.Record((*m).Name, (*m).Status.Epoch, s.Progress)
		wrote, err := h.take(ctx, *m, s)
		if err != nil || !wrote {
			return err
		}
	}
	return nil
}

// machineOf reads the machine of an agent that has this epoch. A head that knows an older one only is behind: what it says
// would be an order to drop a run that was granted.
func (h *Handler) machineOf(ctx context.Context, name string, epoch int64) (*trivet.Machine, error) {
	m, err := h.Fleet.Machines.GetShared(name)
	if err != nil || epoch <= m.Status.Epoch {
		return m, err
	}
	if err := h.fresh(ctx); err != nil {
		return nil, err
	}
	if m, err = h.Fleet.Machines.GetShared(name); err == nil && epoch > m.Status.Epoch {
		err = fmt.Errorf("sync: %w: the machine's epoch is %d, the agent says %d", trivet.ErrFenced, m.Status.Epoch, epoch)
	}
	return m, err
}

// take writes what is new in a sync, and says whether there was anything. A heartbeat of an agent at work, or of an idle
// one without work, writes nothing.
func (h *Handler) take(ctx context.Context, m *trivet.Machine, s *trivet.Sync) (wrote bool, err error) {
	w, err := h.Fleet.Workflows.GetShared(m.Status.Workflow)
	if err != nil {
		return false, nil // it has no run: an idle agent's heartbeat
	}
	st := &w.Status
	n := len(s.Reports)
	switch {
	case n > 0 && s.Epoch != m.Status.Epoch:
		return false, fmt.Errorf("sync: %w: the reports are of epoch %d, the machine's is %d", trivet.ErrFenced, s.Epoch, m.Status.Epoch)
	case n > 0 && s.Reports[n-1].Seq > st.Acked, s.Epoch != 0 && st.Epoch == s.Epoch && st.State == trivet.WorkflowBooting:
		return true, h.Fleet.Report(ctx, s)
	case n == 0 && st.State == trivet.WorkflowBooting && st.Epoch == 0 && s.Epoch <= w.Spec.Epoch: // idle since before the claim
		return true, h.Fleet.Fetch(ctx, m.Name, m.Status.AgentKey)
	}
	return false, nil
}

// grantOf is the answer to an agent that has this epoch.
func (h *Handler) grantOf(m *trivet.Machine, epoch int64) *trivet.Grant {
	g := &trivet.Grant{Machine: m.Name, Epoch: m.Status.Epoch, Time: h.Now(), Interval: h.beat()}
	w, err := h.Fleet.Workflows.GetShared(m.Status.Workflow)
	if err == nil && w.Status.Epoch == m.Status.Epoch {
		g.Acked = w.Status.Acked
	}
	g.Heads, g.Blobs = h.Fleet.HeadURLs(m)
	if epoch == m.Status.Epoch {
		return g
	}
	if g.Run = h.Fleet.Work(m); g.Run != nil && len(g.Blobs) > 0 {
		if g.Run.PhoneHomes = h.phoneHomes(m, g.Blobs); len(g.Run.PhoneHomes) > 0 {
			g.Run.PhoneHome = g.Run.PhoneHomes[0]
		}
	}
	return g
}

// phoneHomeLife is how long an installed system may take to its first boot.
const phoneHomeLife = 30 * 24 * time.Hour

// phoneHomes are at the heads' boot doors.
func (h *Handler) phoneHomes(m *trivet.Machine, heads []string) (urls []string) {
	if len(m.Spec.NICs) == 0 {
		return nil
	}
	token, err := h.Keys.SignBoot(auth.BootToken{
		Purpose: auth.PurposePhoneHome, Machine: m.Name, MAC: m.Spec.NICs[0].MAC, Epoch: m.Status.Epoch,
		Expires: h.Now().Add(phoneHomeLife),
	})
	if err != nil {
		h.Log.Error("no phone-home", "machine", m.Name, "error", err)
		return nil
	}
	for _, head := range heads {
		urls = append(urls, head+"/phone-home/"+token)
	}
	return urls
}

// beat is how often agents shall be heard: several times within the silence that makes them lost.
func (h *Handler) beat() trivet.Duration {
	return trivet.Duration(h.Fleet.AgentTimeout() / 4)
}

func (h *Handler) agentLogs(w http.ResponseWriter, r *http.Request, _ *caller) error {
	w.(*recorder).quiet = true
	body, err := readBody(w, r, auth.MaxSignedBody)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	run, err := h.runOf(r.Context(), q.Get("workflow"))
	if err != nil {
		return err
	}
	if _, err := h.agent(r, body, run.Spec.Machine); err != nil {
		return err
	}
	if run.Spec.Action(q.Get("action")) == nil {
		return fmt.Errorf("log of %s: %w: it has no action %q", run.Name, trivet.ErrInvalid, q.Get("action"))
	}
	attempt, err1 := strconv.Atoi(q.Get("attempt"))
	offset, err2 := strconv.ParseInt(q.Get("offset"), 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("log of %s: %w: %w", run.Name, trivet.ErrInvalid, err)
	}
	if err := h.Logs.Store.Append(run.Name, q.Get("action"), attempt, offset, body); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// runOf finds the workflow whose log is sent. Another head may have made it a moment ago.
func (h *Handler) runOf(ctx context.Context, name string) (*trivet.Workflow, error) {
	run, err := h.Fleet.Workflows.GetShared(name)
	if errors.Is(err, trivet.ErrNotFound) {
		if err := h.fresh(ctx); err != nil {
			return nil, err
		}
		run, err = h.Fleet.Workflows.GetShared(name)
	}
	return run, err
}

func publicKey(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, &trivet.FieldError{Field: "key", Problem: "is not an Ed25519 public key in base64"}
	}
	return key, nil
}
