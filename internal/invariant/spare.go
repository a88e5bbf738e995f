package invariant

import (
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// spare: the loss of any one head breaks nothing.
func spare(f *trivet.StatusFacts, r *result) {
	v := votersOf(f)
	switch {
	case len(f.Heads) == 1:
		r.warn("add two heads: trivet head token (docs/heads.md)",
			"the loss of %s stops everything: it is the only head", f.Heads[0].Name)
		nothingElse(f, r)
		return
	case !f.Quorum:
		r.warn("see the invariant quorum", "there is none: nothing can be written now")
	case len(v.all) == 2:
		r.warn("add a third head or a witness: trivet head token --witness (docs/heads.md)",
			"the loss of %s stops writes: two voters have no majority when one is lost", strings.Join(v.up, " or of "))
	case len(v.all) == 1 && hasStandby(f):
		r.warn("for writes that do not stop: three voters, "+pageHeads,
			"the loss of %s stops writes until its standby takes over; what that has not received is lost", v.all[0])
	case len(v.up)-1 < v.majority():
		r.warn("start "+names(v.down)+", or replace it: trivet head replace",
			"the loss of any of %s stops writes: %d of %d voters respond", names(v.up), len(v.up), len(v.all))
	}
	losses := lossesOf(f)
	for _, head := range sortedNames(slices.Collect(maps.Keys(losses))) {
		what := losses[head]
		r.warn(what[0].remedy, "the loss of %s %s", head, joined(what))
	}
	r.holds("the loss of any one head breaks nothing")
	nothingElse(f, r)
}

func hasStandby(f *trivet.StatusFacts) bool {
	return slices.ContainsFunc(f.Heads, func(h trivet.HeadFacts) bool { return h.Role == trivet.RoleStandby && !h.Down })
}

// takeover: the head that is to take over from the other one can do so.
func takeover(f *trivet.StatusFacts, r *result) {
	any := false
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		switch t := o.Takeover; {
		case t == nil:
			return
		case t.Problem != "":
			r.warn("correct that, or change what was set: trivet head set "+h.Name+" ("+pageHeads+")",
				"%s could not take over by itself: %s", h.Name, t.Problem)
		default:
			r.note("%s takes over from %s after %s without a quorum, once the BMC of that one reports it off", h.Name, t.From,
				t.After)
		}
		any = true
	})
	if !any {
		r.holds("no head that responds takes over by itself")
	}
	r.holds("the head that takes over by itself can do so")
}

// nothingElse notes what the loss of all heads would cost.
func nothingElse(f *trivet.StatusFacts, r *result) {
	if c := f.Backups.Created; c != nil {
		r.note("the loss of all heads loses what was written since the last backup, %s ago", age(f.Time.Sub(c.Made)))
		return
	}
	r.note("the loss of all heads loses everything: there is no backup")
}

// loss is what the loss of one head would break.
type loss struct{ text, remedy string }

func joined(all []loss) string {
	texts := make([]string, len(all))
	for i, l := range all {
		texts[i] = l.text
	}
	return strings.Join(texts, ", and ")
}

// lossesOf returns what the loss of each head that is up would break, besides the quorum.
func lossesOf(f *trivet.StatusFacts) map[string][]loss {
	all := map[string][]loss{}
	if full := fullHeads(f); len(full) == 1 {
		all[full[0]] = append(all[full[0]], loss{"stops everything but votes: it is the only full head that responds",
			"add a full head: trivet head token"})
		return all
	}
	lossOfService(f, all, "DHCP", trivet.ProbeDHCP)
	lossOfService(f, all, "TFTP", trivet.ProbeTFTP)
	lossOfService(f, all, "HTTP boot requests", trivet.ProbeScript, trivet.ProbeKernel)
	lossOfBlobs(f, all)
	return all
}

// fullHeads returns the heads that serve and respond.
func fullHeads(f *trivet.StatusFacts) (all []string) {
	for _, h := range f.Heads {
		if h.Role != trivet.RoleWitness && !h.Down {
			all = append(all, h.Name)
		}
	}
	return all
}

// lossOfService finds the networks in which one head alone answers.
func lossOfService(f *trivet.StatusFacts, all map[string][]loss, what string, services ...string) {
	p := probesOf(f, services...)
	for _, network := range slices.Sorted(maps.Keys(p)) {
		if s := p.serving(network); len(s) == 1 {
			all[s[0]] = append(all[s[0]], loss{"ends " + what + " in network " + network,
				"let another head serve network " + network + ": --dhcp INTERFACE (docs/heads.md)"})
		}
	}
}

// lossOfBlobs finds blobs with one copy.
func lossOfBlobs(f *trivet.StatusFacts, all map[string][]loss) {
	copies, _, _ := copiesOf(f)
	only := map[string]int{}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		if h.State == string(trivet.HeadJoining) {
			return
		}
		for digest, n := range copies {
			if n == 1 && !slices.Contains(o.Missing, digest) {
				only[h.Name]++
			}
		}
	})
	for head, n := range only {
		all[head] = append(all[head], loss{"loses " + count(n, "blob") + ", of which no other head that responds has a copy",
			"wait: the other heads pull them; or start the heads that are down"})
	}
}
