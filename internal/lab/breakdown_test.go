package lab

import (
	"net/netip"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab/grade"
)

// withBMC gives a machine, which is off, a BMC that fails in a way.
func (s *site) withBMC(m *Machine, fault grade.Mode) {
	s.Helper()
	p := &Supply{Machine: m, fault: fault}
	server, err := bmctest.StartRedfish("127.0.0.1:0", p.Handler("u", "p"))
	s.must(err)
	s.Cleanup(func() {
		s.must(server.Stop())
		p.Close()
	})
	_, err = client.Of[trivet.Secret](s.client).Create(s.Context(), &trivet.Secret{Meta: trivet.Meta{Name: "bmc-" + m.Name},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": "u", "password": "p"}, Insecure: true,
			Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}})
	s.must(err)
	_, err = client.Of[trivet.Machine](s.client).Modify(s.Context(), m.Name, func(r *trivet.Machine) error {
		r.Spec.BMC = &trivet.BMC{Protocol: "redfish", Address: server.Address, Secret: "bmc-" + m.Name}
		return nil
	})
	s.must(err)
}

// Machines that break down fail as their heads must find: once, or each time, by an error or in silence.
func TestBreakdowns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.limits(20e9)
	image := map[string]any{"image": "demo"}
	s.template("two", trivet.Action{Name: "image", Use: "image", With: image, Retries: 1},
		trivet.Action{Name: "seed", Use: "seed"}, trivet.Action{Name: "reboot", Use: "reboot"})
	for _, c := range []struct {
		name   string
		fault  grade.Mode
		broken *breakdown
	}{
		{"b", "", nil},
		{"bb", "", &breakdown{step: "image", mode: grade.Error}},
		{"bbb", "", &breakdown{step: "image", mode: grade.Error, once: true}},
		{"bbbb", "", &breakdown{step: "seed", mode: grade.Silent}},
		{"bbbbb", "", &breakdown{step: "seed", mode: grade.Silent, once: true}},
		{"bbbbbb", grade.Errs, nil},
	} {
		m := s.machineOnly(c.name)
		m.broken = c.broken
		s.withBMC(m, c.fault)
		s.provision(c.name, "two")
	}
	s.mustFail("bb", trivet.FaultMachine, "image", "no such file")
	s.mustFail("bbbb", trivet.FaultMachine, "seed", "the agent was lost 2 times")
	s.mustFail("bbbbbb", trivet.FaultMachine, trivet.StepPowerOn, "did not report the machine on")
	for _, name := range []string{"b", "bbb", "bbbbb"} {
		if w := s.until(name+"-1", func(w *trivet.Workflow) bool { return w.Status.State.Ended() }); w.Status.State !=
			trivet.WorkflowSucceeded {
			t.Errorf("%s ended %s: %+v", name, w.Status.State, w.Status.Failure)
		}
	}
}
