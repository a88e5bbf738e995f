package netboot

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/wait"
)

// Bounds of the search for other DHCP servers. The first one is soon after the start, or after there is a network.
const (
	firstSearch    = 10 * time.Second
	searchInterval = 80 * time.Second
	searchWindow   = 5 * time.Second // for the answers: servers may probe an address for 3 s before they offer it
	maxAnswers     = 32              // to one search: a hostile host can send any number
)

// SearchServers looks for other DHCP servers on interfaces, about once a minute until ctx ends, in the networks whose
// addresses Trivet assigns. One head does so in a network.
func (s *Server) SearchServers(ctx context.Context, interfaces []string) {
	for pause := firstSearch; wait.Sleep(ctx, wait.Jitter(pause)) == nil; {
		for _, name := range interfaces {
			network := s.searched(name)
			if network == "" {
				continue
			}
			pause = searchInterval
			left := maxAnswers
			err := dhcp.FindServers(ctx, name, searchWindow, func(a dhcp.Answer) {
				if left--; left >= 0 {
					s.Answered(network, a)
				}
			})
			if err != nil && ctx.Err() == nil {
				s.log.Debug("cannot search for other DHCP servers", "interface", name, "error", err)
			}
		}
	}
}

// searched returns the network on an interface in which this head is to search; empty: none.
func (s *Server) searched(name string) (network string) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return ""
	}
	addrs, err := i.Addrs()
	if err != nil {
		return ""
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err != nil || !p.Addr().Is4() {
			continue
		}
		n := s.Leases.Network(p.Addr())
		if n != nil && n.Record.Spec.DHCPOrDefault() != "proxy" && s.Searches(n.Record.Name) {
			return n.Record.Name
		}
	}
	return ""
}

// Searches reports whether this head is the one that searches in a network: the first of those up that serve it.
func (s *Server) Searches(network string) bool {
	n, err := s.Networks.GetShared(network)
	if err != nil {
		return false
	}
	for _, r := range s.responders.Get().on(n) {
		if r.name == s.Head {
			return true
		}
		if s.Live != nil && s.Live(r.name) {
			return false
		}
	}
	return false
}

// Answered reports the server of an answer unless it is a head. What this head itself sends does not come back to it:
// an answer by its address from another host is not its own.
func (s *Server) Answered(network string, a dhcp.Answer) {
	if a.Server == s.VIP.Addr() {
		return
	}
	if head := s.responders.Get().at(a.Server); head != "" && (head != s.Head || isOwn(a.MAC)) {
		return
	}
	s.metrics.foreign.Inc()
	if !s.foreign.isNew(foreignServer{network, a.Server}, time.Now()) {
		return
	}
	s.log.Warn("another DHCP server answers in a network whose addresses Trivet assigns", "server", a.Server,
		"serverMAC", a.MAC, "network", network)
	s.reports.Add(fleet.ForeignServer{Network: network, Server: a.Server, ServerMAC: a.MAC.String()})
}

// isOwn reports whether this host has an interface with a MAC.
func isOwn(mac net.HardwareAddr) bool {
	all, err := net.Interfaces()
	if err != nil {
		return false
	}
	for _, i := range all {
		if bytes.Equal(i.HardwareAddr, mac) {
			return true
		}
	}
	return false
}
