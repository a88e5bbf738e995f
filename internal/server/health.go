package server

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/health"
	"github.com/trivet-project/trivet/internal/membership"
)

// openHealth creates the source of the facts and invariants of trivet status.
func (s *Server) openHealth(view *membership.View) {
	s.takeover = s.newTakeover()
	s.health = health.New(health.Config{Head: s.local.Name(), Member: s.member, Tables: s.fleet.Tables,
		Client: s.local.Client(), View: view.Cluster, Statuses: s.monitor.Statuses, Quorum: s.member.HasLeader,
		Refused: s.store.Refused, MissingBlobs: s.blobs.Missing, Certificates: s.certificates, Late: s.late,
		Ports: s.bootPorts, Takeover: s.takeover.Facts, DiskErrors: s.faults.recent,
		Started: s.started.Load, Segments: func() []trivet.SegmentFacts { return s.netboot.Segments() }})
}

// late returns the runs that do not go on as they must, once the controllers run.
func (s *Server) late() health.Late {
	c := s.deadlines.Load()
	if c == nil {
		return health.Late{}
	}
	return health.Late(c.Late())
}

// bootPorts returns the ports of DHCP and TFTP.
func (s *Server) bootPorts() (p health.Ports) {
	switch {
	case len(s.cfg.DHCPInterfaces) > 0:
		p.DHCP = dhcp.ServerPort
	case s.cfg.DHCPAddress != "":
		p.DHCP = s.DHCPAddr().Port()
	}
	if s.listeners.tftp != nil {
		p.TFTP = s.listeners.tftp.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	}
	return p
}

// certificates returns when the certificates of this head expire: that of its member, and the CAs of heads and boot
// servers.
func (s *Server) certificates() (all []trivet.CertificateFacts) {
	if c, err := s.local.Cert()(); err == nil {
		all = append(all, trivet.CertificateFacts{Name: "member", Expires: c.Leaf.NotAfter})
	}
	add := func(name string, text []byte) {
		for n := 0; ; n++ {
			block, rest := pem.Decode(text)
			if block == nil {
				return
			}
			text = rest
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			numbered := name
			if n > 0 {
				numbered = fmt.Sprint(name, " ", n+1)
			}
			all = append(all, trivet.CertificateFacts{Name: numbered, Expires: c.NotAfter})
		}
	}
	add("CA", s.local.Root().PEM())
	add("boot CA", s.local.Keys().BootCA().PEM())
	return all
}
