package netboot

import (
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// Several heads receive the packets of one client. RFC 3074's hash names one of those believed to be up, which
// answers at once: the owner. The others answer when the client sends its packet again, or when its secs field says
// that it has waited. A wrong belief costs time and packets only: either two heads answer, with the same address,
// or none does until the client's next packet, which all answer.
//
// Proxy replies are not shared. A client that has an address from another server does not ask again for a boot
// file, so that all heads answer it at once.

// Bounds of load sharing.
const (
	maxClientWait = 3 * time.Second        // by the secs field, until every head answers the client
	copyInterval  = 250 * time.Millisecond // equal packets that are closer are copies, by two relays or interfaces
	deferralTTL   = time.Minute            // after which an equal packet is not a retransmit
	suspectTTL    = 30 * time.Second       // for which a head that did not answer a client is passed over
	maxDeferrals  = 64 << 10
)

// answers reports whether this head answers a client that has not chosen a server.
func (s *Server) answers(c *client) bool {
	if s.isShared(c) {
		return s.answersFor(c, s.owner(c))
	}
	return true
}

// isShared reports whether other heads may have received the packet.
func (s *Server) isShared(c *client) bool {
	return c.decision.Mode == boot.Serve && c.Port != dhcp.ProxyPort && !(c.Unicast && !c.Relay().IsValid())
}

// owner returns the head that answers a client at once, as this head believes.
func (s *Server) owner(c *client) string {
	network := c.lease.Network.Record
	if c.Relay().IsValid() {
		network = nil
	}
	all := s.responders.Get().on(network)
	for i := range all {
		if name := all[(int(c.LoadHash())+i)%len(all)].name; s.up(name, c) {
			return name
		}
	}
	return s.Head
}

// up reports whether a head is believed to answer clients of this one's network.
func (s *Server) up(name string, c *client) bool {
	return name == s.Head || s.Live != nil && s.Live(name) && !s.deferred.suspected(name, c.lease.Network.Record.Name,
		c.Received)
}

// answersFor reports whether this head answers a packet whose owner is given.
func (s *Server) answersFor(c *client, owner string) bool {
	switch {
	case owner == s.Head:
		s.deferred.forget(c.mac)
		return true
	case s.deferred.retransmitted(c.mac, c.Type(), c.Received):
		s.deferred.suspect(owner, c.lease.Network.Record.Name, c.Received)
	case c.Elapsed() < maxClientWait:
		s.log.Debug("dhcp: left to another head", "mac", c.mac, "type", c.Type(), "head", owner)
		return false
	}
	s.takeOver(c, owner)
	return true
}

func (s *Server) takeOver(c *client, from string) {
	s.metrics.takeovers.Inc()
	s.log.Debug("dhcp: answered in place of another head", "mac", c.mac, "type", c.Type(), "head", from)
}

// deferrals remembers the packets that were left to other heads.
type deferrals struct {
	mu sync.Mutex
	// guards following
	byMAC    map[string]deferral
	suspects map[suspect]time.Time // until when
	swept    time.Time
}

type deferral struct {
	kind dhcp.Type
	at   time.Time
}

type suspect struct{ head, network string }

func newDeferrals() *deferrals {
	return &deferrals{byMAC: map[string]deferral{}, suspects: map[suspect]time.Time{}}
}

// retransmitted reports whether a client sent such a packet before, and notes this one. When there are too many
// clients, further ones are not remembered: their secs field gets them an answer.
func (d *deferrals) retransmitted(mac string, kind dhcp.Type, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last, ok := d.byMAC[mac]
	since := now.Sub(last.at)
	if ok && last.kind == kind && since < deferralTTL {
		return since >= copyInterval
	}
	if len(d.byMAC) >= maxDeferrals && now.Sub(d.swept) >= time.Second {
		d.sweep(now)
	}
	if ok || len(d.byMAC) < maxDeferrals {
		d.byMAC[mac] = deferral{kind, now}
	}
	return false
}

func (d *deferrals) sweep(now time.Time) {
	d.swept = now
	for mac, v := range d.byMAC {
		if now.Sub(v.at) >= deferralTTL {
			delete(d.byMAC, mac)
		}
	}
}

// forget forgets a client: it was answered.
func (d *deferrals) forget(mac string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byMAC, mac)
}

// suspect notes that a head did not answer a client of a network.
func (d *deferrals) suspect(head, network string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.suspects[suspect{head, network}] = now.Add(suspectTTL) // as many as there are heads and networks
}

func (d *deferrals) suspected(head, network string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return now.Before(d.suspects[suspect{head, network}])
}
