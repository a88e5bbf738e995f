package invariant

import (
	"maps"
	"slices"

	"github.com/trivet-project/trivet"
)

// probed is what probes found of one service: by network and head, which heads got an answer, and which did not.
type probed map[string]map[string]*answers

type answers struct {
	to, notTo []string // the heads that asked
	problem   string   // of one that got no answer
}

// probesOf returns the probes of heads for some services. A head answers where it answers all of them.
func probesOf(f *trivet.StatusFacts, services ...string) probed {
	p := probed{}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		problems := map[[2]string]string{}
		for _, probe := range o.Probes {
			if slices.Contains(services, probe.Service) {
				key := [2]string{probe.Network, probe.Head}
				if problems[key] == "" {
					problems[key] = probe.Problem
				}
			}
		}
		for key, problem := range problems {
			p.add(key[0], key[1], h.Name, problem)
		}
	})
	return p
}

func (p probed) add(network, head, from, problem string) {
	if p[network] == nil {
		p[network] = map[string]*answers{}
	}
	a := p[network][head]
	if a == nil {
		a = &answers{}
		p[network][head] = a
	}
	if problem == "" {
		a.to = append(a.to, from)
	} else {
		a.notTo, a.problem = append(a.notTo, from), problem
	}
}

// serving returns the heads that answer in a network.
func (p probed) serving(network string) (all []string) {
	for head, a := range p[network] {
		if len(a.to) > 0 {
			all = append(all, head)
		}
	}
	return sortedNames(all)
}

func dhcp(f *trivet.StatusFacts, r *result) {
	bootService(f, r, "DHCP", "check --dhcp of the heads, their cables and firewalls: UDP port 67", trivet.ProbeDHCP)
	for _, n := range f.Networks {
		if n.DHCP != "off" && len(n.Heads) == 0 {
			r.note("network %s is not probed: no head has an address in it; relays serve it, or none does", n.Name)
		}
	}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) { // anyone can send such packets: they change no state
		for _, s := range o.Segments {
			r.note("no Network contains %s, from which %s asked %s by DHCP: create one", s.Address,
				names(s.Clients), h.Name)
		}
	})
}

func tftp(f *trivet.StatusFacts, r *result) {
	bootService(f, r, "TFTP", "check --tftp of the heads and their firewalls: UDP port 69", trivet.ProbeTFTP)
}

func bootHTTP(f *trivet.StatusFacts, r *result) {
	bootService(f, r, "HTTP boot requests", "check --boot of the heads and their firewalls: TCP port 7481; "+
		"the site's platform must be complete: trivet platform list", trivet.ProbeScript, trivet.ProbeKernel)
}

// bootService: each head that is up answers a service in each network that it has an address in. One that is down is
// reported as such.
func bootService(f *trivet.StatusFacts, r *result, what, remedy string, services ...string) {
	p := probesOf(f, services...)
	down := map[string]bool{}
	for _, h := range f.Heads {
		down[h.Name] = h.Down
	}
	served := 0
	for _, network := range slices.Sorted(maps.Keys(p)) {
		served++
		if len(p.serving(network)) == 0 {
			r.broken(remedy, "no head answers %s in network %s", what, network)
		}
		for _, head := range sortedNames(slices.Collect(maps.Keys(p[network]))) {
			a := p[network][head]
			switch {
			case down[head] || len(a.notTo) == 0:
			case len(a.to) == 0:
				r.warn(remedy, "%s answers no %s in network %s: %s", head, what, network, a.problem)
			default:
				r.warn("check the link between them in that network",
					"%s answers %s in network %s to %s, and not to %s: %s", head, what, network, names(sortedNames(a.to)),
					names(sortedNames(a.notTo)), a.problem)
			}
		}
		r.note("%s in network %s: %s", what, network, names(p.serving(network)))
	}
	if served == 0 {
		r.holds("no network is probed")
	}
	r.holds("answered by probe in %s", count(served, "network"))
}

// copiesOf returns, of the blobs that are missing somewhere, how many heads hold each, the heads that were counted, and
// whether all missing ones are known.
func copiesOf(f *trivet.StatusFacts) (copies map[string]int, holders []string, complete bool) {
	copies, complete = map[string]int{}, true
	missing := map[string]int{}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		if h.State == string(trivet.HeadJoining) {
			return // it pulls them
		}
		holders = append(holders, h.Name)
		complete = complete && len(o.Missing) == o.BlobsMissing
		for _, digest := range o.Missing {
			missing[digest]++
		}
	})
	for digest, n := range missing {
		copies[digest] = len(holders) - n
	}
	return copies, holders, complete
}

// blobs: each full head holds what records refer to.
func blobs(f *trivet.StatusFacts, r *result) {
	copies, holders, _ := copiesOf(f)
	for _, digest := range slices.Sorted(maps.Keys(copies)) {
		if copies[digest] == 0 {
			r.broken("import the image or platform again, or restore its contents from a backup: "+pageRecovery,
				"no head that responds holds blob %s", digest)
		}
	}
	own(f, func(h *trivet.HeadFacts, o *trivet.OwnFacts) {
		if o.BlobsMissing > 0 {
			r.warn("wait: it pulls them from the others; if their number does not become less, check its disk and its log",
				"%s lacks %s that records refer to: %s", h.Name, count(o.BlobsMissing, "blob"), names(o.Missing))
		}
	})
	bucket(f.Bucket, r)
	r.holds("each of %s holds all blobs that records refer to", count(len(holders), "head"))
}
