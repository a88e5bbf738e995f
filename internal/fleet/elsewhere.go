package fleet

import (
	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/placement"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/workflow"
)

// elsewhereSince is the release whose heads know machines that were withdrawn.
const elsewhereSince trivet.Release = "0.3.1"

// isElsewhere reports whether the network or platform of a machine is at fault for the failure of its run, and a machine
// with another one is free for the provision, as far as this head knows: it reads at most as many as a search. An image
// is the provision's own choice, and goes with it to every machine.
func (f *Fleet) isElsewhere(t *transition, p *trivet.Provision) bool {
	if p.Spec.Machine != "" || elsewhereSince.Compare(t.tx.ClusterVersion()) > 0 {
		return false
	}
	failure := t.workflow.Status.Failure
	var shares func(*trivet.Machine) bool
	switch workflow.SharedAtFault(failure) {
	case "Network":
		name := f.networkName(t.machine)
		shares = func(m *trivet.Machine) bool { return f.networkName(m) == name }
	case "Platform":
		name := platformName(t.machine, t.site)
		shares = func(m *trivet.Machine) bool { return platformName(m, t.site) == name }
	default:
		return false
	}
	avoided := func(m *trivet.Machine) string {
		if shares(m) || provision.Spent(&p.Status, m) {
			return "not used"
		}
		return f.avoided(m)
	}
	search := &state.Search{Left: f.searches.most}
	return placement.First(f.FreeMachines(p.Spec.Selector, search), &p.Spec, avoided) != nil
}
