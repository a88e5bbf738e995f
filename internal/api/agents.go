package api

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/workflow"
)

// The agent API. An agent signs every request with the key that its hello registers. The hello carries the token of the
// boot script; its signature proves that the agent has the key.

// maxSkew is how far an agent's clock may be off.
const maxSkew = 2 * time.Minute

func (h *Handler) agentRoutes() {
	grant := reflect.TypeFor[trivet.Grant]()
	h.add(route{method: "POST", path: "/agent/v1/hello",
		summary: "Register an agent: spends its boot token, registers its key",
		in:      reflect.TypeFor[trivet.Hello](), out: grant, serve: h.agentHello})
	h.add(route{method: "POST", path: "/agent/v1/sync",
		summary: "An agent's reports and heartbeat; an idle agent waits for a run",
		in:      reflect.TypeFor[trivet.Sync](), out: grant, serve: h.agentSync})
	h.add(route{method: "POST", path: "/agent/v1/logs", summary: "Append to the log of an action",
		query: []string{"workflow: as the run names it", "action: its name", "epoch: of the agent's run",
			"attempt: from 1", "offset: where the piece begins, in bytes"},
		media: "application/octet-stream", in: reflect.TypeFor[[]byte](), status: http.StatusNoContent,
		serve: h.agentLogs})
}

func (h *Handler) agentHello(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if err := h.Presence.Listening(); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if err := h.reachForUnknown(w.(*recorder), r); err != nil {
		return err
	}
	body, err := h.readBody(w, r, trivet.MaxHello)
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
	own := func(string) (ed25519.PublicKey, error) { return key, nil }
	if _, err := auth.VerifyRequest(r, body, own, h.Now(), maxSkew); err != nil {
		return err
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
	if g.Run == nil {
		g.Order, g.Cause = workflow.HelloOrder(m, h.Fleet.RunOf(m))
	}
	return respond(w, http.StatusOK, g)
}

func (h *Handler) agentSync(w http.ResponseWriter, r *http.Request, _ *caller) error {
	w.(*recorder).quiet = true
	if err := h.Presence.Listening(); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	agent, body, err := h.agent(w, r)
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
	m, err := h.machineOfAgent(agent, s.Machine)
	if err != nil {
		return err
	}
	g, err := h.sync(r.Context(), m, &s)
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, g)
}

// agent authenticates a request, and then reads its body. A key that this head does not know may be one that another
// head has just registered.
func (h *Handler) agent(w http.ResponseWriter, r *http.Request) (agent auth.Agent, body []byte, err error) {
	agent, err = h.verify(r)
	if errors.Is(err, trivet.ErrUnauthenticated) && !errors.Is(err, trivet.ErrClockSkew) {
		if err := h.freshForUnknown(r); err != nil {
			return agent, nil, err // unknown for now: an agent does not stop for that
		}
		agent, err = h.verify(r)
	}
	if err != nil {
		return agent, nil, err
	}
	limit.Of(r.Context()).Recognise()
	about(r.Context()).account = "machine/" + agent.Machine
	if err := h.reach(w.(*recorder), r); err != nil {
		return agent, nil, err
	}
	if body, err = h.readBody(w, r, auth.MaxSignedBody); err != nil {
		return agent, nil, err
	}
	return agent, body, agent.VerifyBody(body)
}

// verify verifies the header of an agent's request. An agent has a former name of its machine until the first response
// after the renaming. The result has the name that the machine has now.
func (h *Handler) verify(r *http.Request) (auth.Agent, error) {
	var former []*trivet.Machine
	agent, err := auth.VerifyHeader(r, func(name string) (ed25519.PublicKey, error) {
		former = h.Fleet.MachinesOnce(name)
		m, err := h.Fleet.Machines.GetShared(name)
		return agentKey(name, m, err)
	}, h.Now(), maxSkew)
	if err == nil || errors.Is(err, trivet.ErrClockSkew) {
		return agent, err
	}
	for _, m := range former {
		key := func(string) (ed25519.PublicKey, error) { return agentKey(m.Name, m, nil) }
		agent, errFormer := auth.VerifyHeader(r, key, h.Now(), maxSkew)
		if agent.Machine = m.Name; errFormer == nil || errors.Is(errFormer, trivet.ErrClockSkew) {
			return agent, errFormer
		}
	}
	return agent, err
}

// agentKey returns the key of a machine's agent.
func agentKey(name string, m *trivet.Machine, err error) (ed25519.PublicKey, error) {
	if err != nil || m.Status.AgentKey == "" {
		return nil, fmt.Errorf("machine %s: %w: no agent is registered", name, trivet.ErrUnauthenticated)
	}
	return publicKey(m.Status.AgentKey)
}

// machineOfAgent returns the machine that a request is about, which must be the agent's, by its name or a former one.
func (h *Handler) machineOfAgent(agent auth.Agent, machine string) (*trivet.Machine, error) {
	m, err := h.Fleet.Machines.GetShared(agent.Machine)
	if err == nil && machine != m.Name && !slices.Contains(m.Status.FormerNames, machine) {
		return nil, fmt.Errorf("%w: the agent of %s cannot report for %s", trivet.ErrForbidden, agent.Machine, machine)
	}
	return m, err
}

func publicKey(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, &trivet.FieldError{Field: "key", Problem: "is not an Ed25519 public key in base64"}
	}
	return key, nil
}
