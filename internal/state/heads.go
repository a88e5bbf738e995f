package state

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// PutHeadEvent writes an event of a head, in the place of its last one about the same thing.
func (t *Tables) PutHeadEvent(ctx context.Context, head, about string, spec trivet.EventSpec) error {
	spec.Subject, spec.Head, spec.Seq, spec.Time = "head/"+head, head, 1, time.Now()
	_, err := t.Store.Update(ctx, func(tx *store.Tx) error {
		h, err := t.Heads.In(tx).Get(head)
		if err != nil {
			return err
		}
		event := &trivet.Event{Meta: trivet.Meta{Name: "head." + head + "." + about}, Spec: spec}
		event.Spec.SubjectUID = h.UID
		return t.Events.In(tx).Put(event)
	})
	return err
}

// PeerURLs returns the other full heads, which agents may talk to, and the URL where heads reach each. self is the
// name of this head.
func (t *Tables) PeerURLs(self string) map[string]string {
	urls := map[string]string{}
	for h := range t.Heads.AllShared() {
		if h.Name != self && h.Serves() && h.Status.Peer != "" {
			urls[h.Name] = h.Status.Peer
		}
	}
	return urls
}

// HeadURLs returns where a machine reaches the heads: their APIs, and their boot servers, which serve blobs. Those in
// the machine's own network come first. Without a machine the order is undefined.
func (t *Tables) HeadURLs(m *trivet.Machine) (api, boot []string) {
	for h := range t.Heads.AllShared() {
		if h.Serves() {
			api = append(api, h.Status.API...)
			boot = append(boot, h.Status.Boot...)
		}
	}
	if m != nil {
		nets := t.networksOf(m)
		localFirst(api, nets)
		localFirst(boot, nets)
	}
	return api, boot
}

// networksOf returns the networks that a machine has addresses in.
func (t *Tables) networksOf(m *trivet.Machine) (nets []netip.Prefix) {
	for _, nic := range m.Spec.NICs {
		for _, a := range t.Addresses.SharedBy(ByMAC, nic.MAC) {
			if n, err := t.Networks.GetShared(a.Spec.Network); err == nil {
				nets = append(nets, n.Spec.CIDR)
			}
		}
	}
	return nets
}

// localFirst sorts the URLs of hosts in these networks before all others.
func localFirst(urls []string, nets []netip.Prefix) {
	rank := func(text string) int {
		u, err := url.Parse(text)
		if err != nil {
			return 1
		}
		ip, err := netip.ParseAddr(u.Hostname())
		if err == nil && slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Contains(ip) }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(urls, func(a, b string) int { return rank(a) - rank(b) })
}
