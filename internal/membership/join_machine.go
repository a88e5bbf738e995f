package membership

import (
	"errors"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// A machine that a provision has made a head (trivet head promote) joins by a boot token, which only the agent of its
// run has got. The head that is asked verifies the signature; what else decides is in the records of the machine,
// its provision and its run: the run has succeeded, the request comes from the address of the machine, and no head has
// joined by the run before.

// machineToken returns what the token of a request says, where it is one of a machine; else nil.
func (s *Server) machineToken(text string) (*auth.BootToken, error) {
	if _, ok := auth.JoinID(text); !ok {
		return nil, nil
	}
	t, err := s.Keys.VerifyBoot(auth.PurposeJoin, text, time.Now())
	if err != nil {
		return nil, &trivet.Error{Op: "use join token", Err: err, Hint: hintPromoteAgain}
	}
	return &t, nil
}

const hintPromoteAgain = "install the machine again: trivet head promote MACHINE"

// tokenOfMachine returns what the record of the token would be, if it were stored.
func (r *Records) tokenOfMachine(tx *store.Tx, req *JoinRequest) (*trivet.Token, error) {
	m, p, err := r.promoted(tx, req.machine)
	if err != nil {
		return nil, err
	}
	if hostOf(req.Peer) != p.Status.Address {
		return nil, errToken("start it with --advertise "+p.Status.Address+", on the machine", trivet.ErrForbidden,
			"it is for machine %s at %s, not for %.300q", m.Name, p.Status.Address, req.Peer)
	}
	t := &trivet.Token{Spec: trivet.TokenSpec{Join: p.Spec.Head.RoleOf(), Expires: req.machine.Expires}}
	for _, listed := range r.Heads.In(tx).ListBy(state.ByHost, m.UID) {
		h, err := r.Heads.In(tx).Get(listed.Name)
		switch {
		case err != nil:
			return nil, err
		case h.Status.Run == req.machine.Run:
			t.Spec.Used = h.Status.Join
		case h.Status.State != trivet.HeadRemoved:
			return nil, errToken("first: trivet head demote "+h.Name, trivet.ErrForbidden, "machine %s is %s already",
				m.Name, h.Name)
		}
	}
	return t, nil
}

// promoted returns the machine of a token, and the provision that has made it a head.
func (r *Records) promoted(tx *store.Tx, t *auth.BootToken) (*trivet.Machine, *trivet.Provision, error) {
	gone := errToken(hintPromoteAgain, trivet.ErrForbidden, "machine %s has been given to something else since", t.Machine)
	m, err := r.Machines.In(tx).Get(t.Machine)
	if errors.Is(err, trivet.ErrNotFound) {
		return nil, nil, gone
	}
	if err != nil {
		return nil, nil, err
	}
	w, err := r.Workflows.In(tx).Get(trivet.Resolve("", m.Status.Workflow))
	if errors.Is(err, trivet.ErrNotFound) || err == nil && (w.UID != t.Run || w.Spec.MachineUID != m.UID) {
		return nil, nil, gone
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := r.Provisions.In(tx).Get(trivet.Resolve("", m.Status.Provision))
	if errors.Is(err, trivet.ErrNotFound) || err == nil && (p.Spec.Head == nil || p.Status.MachineUID != m.UID) {
		return nil, nil, gone
	}
	switch {
	case err != nil:
		return nil, nil, err
	case m.Status.State == trivet.MachineQuarantined:
		return nil, nil, errToken("trivet accept "+m.Name+", and start it again", trivet.ErrForbidden,
			"machine %s is in quarantine", m.Name)
	case m.Status.State != trivet.MachineActive: // it has not phoned home yet; the new head asks again
		return nil, nil, &trivet.Error{Op: "use join token", Hint: "see: trivet why " + m.Name,
			Err: fmt.Errorf("%w: the installation of machine %s has not ended: it is %s", trivet.ErrUnavailable, m.Name,
				m.Status.State)}
	}
	return m, p, nil
}

// createOnMachine writes the record of a head that joins on a machine. From now on nothing takes the machine from its
// provision.
func (r *Records) createOnMachine(tx *store.Tx, h *trivet.Head, req *JoinRequest) error {
	m, _, err := r.promoted(tx, req.machine)
	if err != nil {
		return err
	}
	h.Status.Machine, h.Status.MachineUID, h.Status.Run = m.Name, m.UID, req.machine.Run
	return r.Heads.In(tx).Create(h)
}
