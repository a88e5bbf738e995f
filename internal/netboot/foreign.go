package netboot

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet/internal/fleet"
)

// Bounds of the reports of DHCP servers that are not heads. A hostile client can name any server.
const (
	foreignAgain = 10 * time.Minute // until a server is reported again
	foreignEvery = 10 * time.Second // between reports, after the first ones
	foreignBurst = 4
	maxForeign   = 256
)

// foreignServers remembers which servers were reported.
type foreignServers struct {
	mu       sync.Mutex
	reported map[foreignServer]time.Time // guarded by mu
	limit    *rate.Limiter
}

type foreignServer struct {
	network string
	address netip.Addr
}

func newForeignServers() *foreignServers {
	return &foreignServers{reported: map[foreignServer]time.Time{},
		limit: rate.NewLimiter(rate.Every(foreignEvery), foreignBurst)}
}

// isNew reports whether a server is to be reported now.
func (f *foreignServers) isNew(s foreignServer, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last, ok := f.reported[s]; ok && now.Sub(last) < foreignAgain || !f.limit.AllowN(now, 1) {
		return false
	}
	if len(f.reported) >= maxForeign {
		clear(f.reported)
	}
	f.reported[s] = now
	return true
}

// reportForeign reports that a client accepted the offer of a server that is not a head.
func (s *Server) reportForeign(c *client, server netip.Addr) {
	s.metrics.foreign.Inc()
	network := c.lease.Network.Record.Name
	if server == s.VIP.Addr() || !s.foreign.isNew(foreignServer{network, server}, c.Received) {
		return
	}
	s.log.Warn("another DHCP server answers in a network whose addresses Trivet assigns", "server", server,
		"network", network, "mac", c.mac, "machine", c.name())
	report := fleet.ForeignServer{Network: network, Server: server, MAC: c.mac, Address: c.RequestedIP()}
	if c.machine != nil {
		report.Machine = c.machine.Name
	}
	s.reports.Add(report)
}

func (s *Server) writeReport(ctx context.Context, r fleet.ForeignServer) error {
	return s.ForeignServer(ctx, r)
}

func (s *Server) dropReport(r fleet.ForeignServer, err error) {
	s.metrics.dropped.Inc()
	s.log.Debug("a foreign DHCP server was not recorded", "server", r.Server, "error", err)
}
