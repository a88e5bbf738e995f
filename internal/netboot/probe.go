package netboot

import (
	"net/http"
	"net/netip"

	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// Heads probe the boot services of one another (internal/health): each takes the path of a machine, and nothing is
// assigned, written or noted for it. Only heads get an answer.

// serveProbe answers the DHCPDISCOVER of a probe as that of a known machine, without an address.
func (s *Server) serveProbe(r *dhcp.Packet) *dhcp.Reply {
	if r.Type() != dhcp.Discover || !s.isHead(r.Relay()) {
		return nil
	}
	c := &client{Packet: r, host: host{mac: dhcp.ProbeMAC}, server: r.Local}
	c.lease = addressing.Request{MAC: c.mac, Network: s.Leases.Network(r.Link()), Server: r.Local}
	facts := s.facts(c)
	facts.Known = true
	if c.decision = boot.Decide(facts); c.decision.Mode == boot.Silent {
		return nil
	}
	return s.reply(c, dhcp.Offer, netip.Addr{}, 0)
}

// isHead reports whether a head that serves DHCP has an address.
func (s *Server) isHead(a netip.Addr) bool { return a.IsValid() && s.responders.Get().at(a) != "" }

// probeScript returns the script of a probe: that of a machine that waits. It has no token.
func (s *Server) probeScript(r *http.Request) string {
	return boot.Script(boot.ScriptFacts{Target: boot.Wait, Reason: "a head probes its boot services", Machine: "probe",
		MAC: dhcp.ProbeMAC, Heads: s.bootURLs(r)})
}
