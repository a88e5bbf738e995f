package netboot

import (
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// Several heads hear the same client. RFC 3074's hash names one of those believed to be up, which answers at once; the
// others answer when the client asks again, or says that it has asked for a while. So belief only saves time and packets:
// where it is wrong, two heads answer, which is no harm as both give the same address, or none does until the client's
// next packet, which all answer.
//
// A proxy's answers are not shared out. A client that has an address from another server does not ask again for a boot
// file, so all heads answer it at once.

// Bounds of sharing.
const (
	patience  = 3 * time.Second        // of a client, by what it says in secs, until every head answers it
	copyGap   = 250 * time.Millisecond // packets that are closer are one that came by two ways
	askLife   = time.Minute            // after which a packet like an earlier one is not its repetition
	doubtLife = 30 * time.Second       // for which a head that left a client without an answer is passed over
	maxAsks   = 64 << 10
)

// shared says whether this head answers a client that has no server yet.
func (d *Door) shared(c *client) bool {
	if d.mayShare(c) {
		return d.turn(c, d.owner(c))
	}
	return true
}

// mayShare says whether other heads may have heard the packet.
func (d *Door) mayShare(c *client) bool {
	return c.decision.Mode == boot.Serve && c.Port != dhcp.ProxyPort && !(c.Unicast && !c.Relay().IsValid())
}

// owner is the head whose turn a client is, as this head believes.
func (d *Door) owner(c *client) string {
	network := c.network.record
	if c.Relay().IsValid() {
		network = nil
	}
	all := d.heads.table().on(network)
	for i := range all {
		if name := all[(int(c.LoadHash())+i)%len(all)].name; d.up(name, c) {
			return name
		}
	}
	return d.Head
}

// up says whether a head is believed to answer clients of this one's network.
func (d *Door) up(name string, c *client) bool {
	return name == d.Head || d.Live != nil && d.Live(name) && !d.asks.doubted(name, c.network.record.Name, c.Received)
}

// turn says whether this head answers a packet that is another one's to answer.
func (d *Door) turn(c *client, owner string) bool {
	switch {
	case owner == d.Head:
		d.asks.done(c.mac)
		return true
	case d.asks.again(c.mac, c.Type(), c.Received):
		d.asks.doubt(owner, c.network.record.Name, c.Received)
	case c.Elapsed() < patience:
		d.log.Debug("dhcp: left to another head", "mac", c.mac, "type", c.Type(), "head", owner)
		return false
	}
	d.takeOver(c, owner)
	return true
}

func (d *Door) takeOver(c *client, from string) {
	d.metrics.takeovers.Inc()
	d.log.Debug("dhcp: answers in another head's place", "mac", c.mac, "type", c.Type(), "head", from)
}

// asks remembers what was left to other heads.
type asks struct {
	mu sync.Mutex
	// guards following
	byMAC  map[string]ask
	doubts map[doubt]time.Time // until when
	swept  time.Time
}

type ask struct {
	kind dhcp.Type
	at   time.Time
}

type doubt struct{ head, network string }

func newAsks() *asks { return &asks{byMAC: map[string]ask{}, doubts: map[doubt]time.Time{}} }

// again says whether a client asks for the same a second time. When there are too many clients, further ones are not
// remembered: by what they say of themselves they are answered in the end.
func (a *asks) again(mac string, kind dhcp.Type, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok := a.byMAC[mac]
	since := now.Sub(last.at)
	if ok && last.kind == kind && since < askLife {
		return since >= copyGap
	}
	if len(a.byMAC) >= maxAsks && now.Sub(a.swept) >= time.Second {
		a.sweep(now)
	}
	if ok || len(a.byMAC) < maxAsks {
		a.byMAC[mac] = ask{kind, now}
	}
	return false
}

func (a *asks) sweep(now time.Time) {
	a.swept = now
	for mac, v := range a.byMAC {
		if now.Sub(v.at) >= askLife {
			delete(a.byMAC, mac)
		}
	}
}

// done forgets a client: it has its answer.
func (a *asks) done(mac string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byMAC, mac)
}

// doubt notes that a head has left a client of a network without an answer.
func (a *asks) doubt(head, network string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubts[doubt{head, network}] = now.Add(doubtLife) // as many as there are heads and networks
}

func (a *asks) doubted(head, network string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.doubts[doubt{head, network}])
}
