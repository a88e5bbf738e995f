package netboot

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Bounds of what is remembered of segments without a Network: any host can send packets in the name of a relay.
const (
	maxSegments       = 64
	maxSegmentClients = 8
	segmentTTL        = time.Hour // after which one without packets is forgotten, where there are too many
)

// segments are those without a Network from which DHCP clients ask, as this head received their packets.
type segments struct {
	mu  sync.Mutex
	all map[netip.Addr]*trivet.SegmentFacts // guarded by mu
}

func newSegments() *segments { return &segments{all: map[netip.Addr]*trivet.SegmentFacts{}} }

// note remembers a packet, and reports whether its segment is new.
func (s *segments) note(segment netip.Addr, mac string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.all[segment]
	isNew := f == nil
	if isNew {
		if len(s.all) >= maxSegments && !s.forget(now) {
			return false
		}
		f = &trivet.SegmentFacts{Address: segment.String()}
		s.all[segment] = f
	}
	f.Last = now
	if i := slices.Index(f.Clients, mac); i >= 0 {
		f.Clients = slices.Delete(f.Clients, i, i+1)
	} else if len(f.Clients) == maxSegmentClients {
		f.Clients = slices.Delete(f.Clients, 0, 1)
	}
	f.Clients = append(f.Clients, mac) // the last one is the latest
	return isNew
}

// forget removes the segments without packets for long, and reports whether there is room. mu is held.
func (s *segments) forget(now time.Time) bool {
	for a, f := range s.all {
		if now.Sub(f.Last) >= segmentTTL {
			delete(s.all, a)
		}
	}
	return len(s.all) < maxSegments
}

// Segments returns the segments from which DHCP clients ask, and of which there is still no Network, in order.
func (s *Server) Segments() (found []trivet.SegmentFacts) {
	s.segments.mu.Lock()
	defer s.segments.mu.Unlock()
	for a, f := range s.segments.all {
		if s.Leases.Network(a) == nil {
			c := *f
			c.Clients = slices.Clone(f.Clients)
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b trivet.SegmentFacts) int { return strings.Compare(a.Address, b.Address) })
	return found
}

// noteSegment remembers that a client asks from a segment without a Network, and logs that once for each segment.
func (s *Server) noteSegment(c *client) {
	segment := c.Link()
	if segment == c.ClientIP() && !c.Relay().IsValid() { // it may be of any network that the client was in before
		segment = c.Local
	}
	if s.Leases.Network(segment) != nil {
		return
	}
	s.metrics.segments.Inc()
	if s.segments.note(segment, c.mac, c.Received) {
		s.log.Info("dhcp: a client asks from a segment without a Network; create one whose spec.cidr contains its address",
			"segment", segment, "mac", c.mac, "machine", c.name())
	}
}
