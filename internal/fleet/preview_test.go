package fleet_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/store"
)

// preview returns the run that a stored provision would start.
func (r *rack) preview(name string) (w *trivet.Workflow, waits string) {
	r.Helper()
	p, err := r.Provisions.Get(name)
	r.must(err)
	v, err := r.Preview(p)
	r.must(err)
	errTried := errors.New("tried only")
	_, err = r.Store.Update(r.Context(), func(tx *store.Tx) error {
		var err error
		if w, err = v.Run(tx, p); err != nil {
			return err
		}
		return errTried
	})
	if !errors.Is(err, errTried) {
		r.Fatal(err)
	}
	return w, v.Waits
}

// A preview is the run that a claim starts, of a machine that boots and of one with an idle agent, also while another
// state prevents the claim.
func TestPreviewIsWhatAClaimStarts(t *testing.T) {
	for _, idle := range []bool{false, true} {
		r := newRack(t)
		setState := func(state trivet.MachineState) {
			r.write(func(tx *store.Tx) error {
				m, err := r.Machines.In(tx).Get("m1")
				if err != nil {
					return err
				}
				if m.Status.State = state; idle {
					m.Status.AgentKey, m.Status.Epoch = "k1", 1
				}
				return r.Machines.In(tx).Put(m)
			})
		}
		r.AgentUp = func(string, int64) bool { return idle }
		r.write(func(tx *store.Tx) error {
			return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1", Hostname: "h"}})
		})
		setState(trivet.MachineQuarantined)
		first, waits := r.preview("default/p")
		if waits != "no machine is free: 1 quarantined" {
			t.Errorf("in quarantine: %q", waits)
		}
		setState(trivet.MachineAvailable)
		second, waits := r.preview("default/p")
		if waits != "" {
			t.Errorf("available: %q", waits)
		}
		r.must(r.Claim(t.Context(), "default/p"))
		got, err := r.Workflows.Get("default/p-1")
		r.must(err)
		for _, w := range []*trivet.Workflow{first, second} {
			if diff := cmp.Diff(got.Spec, w.Spec, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("idle agent: %v: the spec of the claim and of the preview:\n%s", idle, diff)
			}
			if diff := cmp.Diff(withoutTimes(got.Status.Steps), withoutTimes(w.Status.Steps)); diff != "" {
				t.Errorf("idle agent: %v: the steps of the claim and of the preview:\n%s", idle, diff)
			}
		}
	}
}

// A preview keeps no address. Where there is none, that is why it waits, and it is added to what the template lacks.
func TestPreviewWithoutAnAddress(t *testing.T) {
	r := newRack(t)
	leases := addressing.New(addressing.Config{Tables: r.Tables})
	r.Propose, r.Predict = leases.Propose, leases.Predict
	r.addNetwork("lan", "10.0.0.")
	setContent := func(content string) {
		r.write(func(tx *store.Tx) error {
			return r.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "motd", Use: "file",
					With: map[string]any{"path": "/etc/motd", "content": content}}}}})
		})
	}
	setContent("{{.Network.Address}}")
	r.write(func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		if err != nil {
			return err
		}
		n.Spec.Ranges[0].To = n.Spec.Ranges[0].From
		return errors.Join(r.Networks.In(tx).Put(n),
			r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
				Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1"}}))
	})
	if w, waits := r.preview("default/p"); waits != "" || w.Spec.Actions[0].With["content"] != "10.0.0.10" {
		t.Errorf("with an address: %q, %+v", waits, w.Spec.Actions)
	}
	network, known := leases.Network(netip.MustParseAddr("10.0.0.1")), &trivet.Machine{Meta: trivet.Meta{Name: "m2"}}
	a, err := leases.Offer(&addressing.Request{MAC: "52:54:00:00:00:02", Machine: known, Network: network})
	if err != nil || a.String() != "10.0.0.10" {
		t.Errorf("after the preview, another machine is offered %s, %v", a, err)
	}
	r.write(func(tx *store.Tx) error {
		return r.Addresses.In(tx).Create(&trivet.Address{Meta: trivet.Meta{Name: "10.0.0.10"}, Spec: trivet.AddressSpec{
			Network: "lan", MAC: "52:54:00:00:00:02", Machine: "m2", MachineUID: "u2"}})
	})
	p, err := r.Provisions.Get("default/p")
	r.must(err)
	v, err := r.Preview(p)
	r.must(err)
	_, err = r.Store.Update(t.Context(), func(tx *store.Tx) error { _, err := v.Run(tx, p); return err })
	for _, want := range []string{"content uses .Network.Address, which is empty",
		"spec.machine names one that gets no address now: an address for machine m1: no free address"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without an address: %v, want %q", err, want)
		}
	}
	setContent("none")
	if _, waits := r.preview("default/p"); !strings.HasPrefix(waits, "an address for machine m1: no free address") {
		t.Errorf("without an address, which the template does not use: %q", waits)
	}
}

func withoutTimes(steps []trivet.Step) (all []trivet.Step) {
	for _, s := range steps {
		all = append(all, trivet.Step{Name: s.Name, State: s.State, MaxAttempts: s.MaxAttempts, Timeout: s.Timeout,
			Note: s.Note})
	}
	return all
}
