// Package netconfig renders the network of an installed system as cloud-init's network-config, version 2, which is
// netplan's format. It is pure.
package netconfig

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/trivet-project/trivet"
)

// BootName is what the boot port is called in the configuration where no interface has its MAC. The port keeps the name
// that it has.
const BootName = "boot"

// config is the format. Its JSON is YAML without quoting rules.
type config struct {
	Version   int               `json:"version"`
	Ethernets map[string]device `json:"ethernets,omitempty"`
	Bonds     map[string]device `json:"bonds,omitempty"`
	VLANs     map[string]device `json:"vlans,omitempty"`
}

// device is an interface of any type.
type device struct {
	Match       *match       `json:"match,omitempty"`
	SetName     string       `json:"set-name,omitempty"`
	Interfaces  []string     `json:"interfaces,omitempty"` // of a bond
	Parameters  *parameters  `json:"parameters,omitempty"` // of a bond
	MACAddress  string       `json:"macaddress,omitempty"` // of a bond
	ID          int          `json:"id,omitempty"`         // of a VLAN
	Link        string       `json:"link,omitempty"`       // of a VLAN
	Optional    bool         `json:"optional,omitempty"`   // the boot does not wait for it
	DHCP4       bool         `json:"dhcp4,omitempty"`
	Addresses   []string     `json:"addresses,omitempty"`
	Routes      []route      `json:"routes,omitempty"`
	Nameservers *nameservers `json:"nameservers,omitempty"`
	MTU         int          `json:"mtu,omitempty"`
}

type match struct {
	MACAddress string `json:"macaddress"`
}

type parameters struct {
	Mode       string `json:"mode"`
	Monitor    int    `json:"mii-monitor-interval"` // in ms; the kernel's default is not to look at the links
	LACPRate   string `json:"lacp-rate,omitempty"`
	HashPolicy string `json:"transmit-hash-policy,omitempty"`
}

const monitorInterval = 100

type route struct {
	To     string `json:"to"`
	Via    string `json:"via"`
	Metric int    `json:"metric,omitempty"`
}

type nameservers struct {
	Addresses []string `json:"addresses,omitempty"`
	Search    []string `json:"search,omitempty"`
}

// Render returns the configuration of the interfaces of a machine that boots from a port. boot is the configuration of
// that port; nil, or without a MAC: it is not known. The result is nil where nothing is to be configured.
func Render(interfaces []trivet.Interface, boot *trivet.RunNetwork) []byte {
	if boot == nil {
		boot = &trivet.RunNetwork{}
	}
	if len(interfaces) == 0 && boot.MAC == "" {
		return nil
	}
	p := newPlan(interfaces, boot)
	c := config{Version: 2, Ethernets: map[string]device{}, Bonds: map[string]device{}, VLANs: map[string]device{}}
	for i := range interfaces {
		p.add(&c, &interfaces[i])
	}
	if boot.MAC != "" && p.bootPort == "" {
		d := device{Match: &match{boot.MAC}}
		p.addBoot(&d, &trivet.Interface{})
		c.Ethernets[BootName] = d
	}
	return encode(c)
}

func encode(c config) []byte {
	var b bytes.Buffer
	j := json.NewEncoder(&b)
	j.SetEscapeHTML(false)
	j.SetIndent("", "  ")
	_ = j.Encode(c) // it consists of texts and numbers
	return b.Bytes()
}

// plan is what the interfaces mean together.
type plan struct {
	boot     *trivet.RunNetwork
	macs     map[string]string // of ports, by name
	bonded   map[string]bool   // the ports of bonds
	bootPort string            // the interface that is the boot port; empty: none is
	routed   bool              // an interface has a default route, so that the boot network's is not used
}

func newPlan(interfaces []trivet.Interface, boot *trivet.RunNetwork) *plan {
	p := &plan{boot: boot, macs: map[string]string{}, bonded: map[string]bool{}}
	for i := range interfaces {
		face := &interfaces[i]
		if face.MAC != "" {
			p.macs[face.Name] = face.MAC
		}
		if face.MAC != "" && face.MAC == boot.MAC {
			p.bootPort = face.Name
		}
		if face.Bond != nil {
			for _, port := range face.Bond.Ports {
				p.bonded[port] = true
			}
		}
		isDefault := func(r trivet.Route) bool { return r.To == trivet.DefaultRoute }
		p.routed = p.routed || face.Gateway.IsValid() || slices.ContainsFunc(face.Routes, isDefault)
	}
	return p
}

// add adds an interface to the configuration.
func (p *plan) add(c *config, face *trivet.Interface) {
	var d device
	switch {
	case face.Bond != nil:
		p.addBond(&d, face.Bond)
	case face.VLAN != nil:
		d.ID, d.Link = face.VLAN.ID, face.VLAN.Link
	default:
		d.Match, d.SetName = &match{face.MAC}, face.Name
	}
	if !p.bonded[face.Name] {
		p.addNetwork(&d, face)
	}
	// A port without a cable must not delay the boot. What is on it is waited for.
	d.Optional = !d.DHCP4 && len(d.Addresses) == 0
	switch {
	case face.Bond != nil:
		c.Bonds[face.Name] = d
	case face.VLAN != nil:
		c.VLANs[face.Name] = d
	default:
		c.Ethernets[face.Name] = d
	}
}

// addBond adds what makes a bond. It has the MAC of the boot port, or of its first port: systemd would invent one, and
// the boot port's leases are by its MAC.
func (p *plan) addBond(d *device, b *trivet.Bond) {
	d.Interfaces = b.Ports
	d.Parameters = &parameters{Mode: b.Mode, Monitor: monitorInterval}
	if b.HasLACP() { // also what is the default: that of the installed system may be another one
		d.Parameters.LACPRate = b.LACPRateOrDefault()
	}
	if b.Hashes() {
		d.Parameters.HashPolicy = b.HashPolicyOrDefault()
	}
	switch {
	case p.bootPort != "" && slices.Contains(b.Ports, p.bootPort):
		d.MACAddress = p.boot.MAC
	case len(b.Ports) > 0:
		d.MACAddress = p.macs[b.Ports[0]]
	}
}

// addNetwork adds the addresses of an interface, its routes and name servers.
func (p *plan) addNetwork(d *device, face *trivet.Interface) {
	d.DHCP4 = face.DHCP
	for _, a := range face.Addresses {
		d.Addresses = append(d.Addresses, a.String())
	}
	if face.Gateway.IsValid() {
		d.Routes = append(d.Routes, route{To: trivet.DefaultRoute.String(), Via: face.Gateway.String()})
	}
	for _, r := range face.Routes {
		d.Routes = append(d.Routes, route{To: r.To.String(), Via: r.Via.String(), Metric: r.Metric})
	}
	var servers []string
	for _, a := range face.DNS {
		servers = append(servers, a.String())
	}
	d.setResolver(servers, face.Domain)
	d.MTU = face.MTU
	if p.isBoot(face) && !face.DHCP && !face.NoAddress && len(face.Addresses) == 0 {
		p.addBoot(d, face)
	}
}

// isBoot reports whether the interface is the boot port, or the bond that this is in.
func (p *plan) isBoot(face *trivet.Interface) bool {
	return p.bootPort != "" && (face.Name == p.bootPort || face.Bonds(p.bootPort))
}

// addBoot adds the boot port's address, and of its network what the interface does not set itself.
func (p *plan) addBoot(d *device, face *trivet.Interface) {
	n := p.boot
	if face.MTU == 0 {
		d.MTU = n.MTU
	}
	if n.Address == "" {
		d.DHCP4 = true
		return
	}
	d.Addresses = []string{n.Address}
	if n.Gateway != "" && !p.routed {
		d.Routes = slices.Insert(d.Routes, 0, route{To: trivet.DefaultRoute.String(), Via: n.Gateway})
	}
	servers, domain := n.DNS, n.Domain
	if d.Nameservers != nil && len(d.Nameservers.Addresses) > 0 {
		servers = d.Nameservers.Addresses
	}
	if face.Domain != "" {
		domain = face.Domain
	}
	if len(servers) > 0 {
		d.setResolver(servers, domain)
	}
}

func (d *device) setResolver(servers []string, domain string) {
	if len(servers) == 0 && domain == "" {
		return
	}
	d.Nameservers = &nameservers{Addresses: servers}
	if domain != "" {
		d.Nameservers.Search = []string{domain}
	}
}
