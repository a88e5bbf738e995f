package trivet

import (
	"net/netip"
	"strings"
)

// Host returns the host of the BMC's address: a name or an address; empty if it has none.
func (b *BMC) Host() string {
	host, _ := b.hostPort()
	return host
}

// hostPort returns the host of the BMC's address, and the port where it has one.
func (b *BMC) hostPort() (host, port string) {
	address := b.Address
	if _, rest, isURL := strings.Cut(address, "://"); isURL {
		address = rest
	}
	address, _, _ = strings.Cut(address, "/")
	address = address[strings.LastIndexByte(address, '@')+1:] // without a user and password
	if strings.Count(address, ":") == 1 || strings.Contains(address, "]:") {
		colon := strings.LastIndexByte(address, ':')
		address, port = address[:colon], strings.TrimLeft(address[colon+1:], "0")
	}
	host = strings.Trim(address, "[]")
	if a, err := netip.ParseAddr(host); err == nil && port != "" {
		host = a.String()
	}
	return host, port
}

// Endpoint returns what receives the commands for the machine, in one form however the address is written, and the path
// of its system where the address has one. A host alone is one at the default port of its protocol: IPMI and Redfish
// are there two ways to the same BMC. A program of protocol exec distinguishes devices by all that it is given.
func (b *BMC) Endpoint() (service, system string) {
	scheme, address, isURL := strings.Cut(b.Address, "://")
	if !isURL {
		scheme, address = b.Protocol, b.Address
	}
	if b.Protocol == "exec" {
		return strings.Join([]string{b.Protocol, b.Command, strings.ToLower(b.Address), Resolve("", b.Secret)}, " "), ""
	}
	host, port := b.hostPort()
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.Unmap().String()
	}
	if port != "" && port != bmcPorts[strings.ToLower(scheme)] {
		host = b.Protocol + " " + host + " " + port
	}
	_, path, _ := strings.Cut(address, "/")
	if path = strings.Trim(path, "/"); path == "redfish/v1" { // the root of every service
		path = ""
	}
	return host, path
}

// bmcPorts are the default ports of BMCs.
var bmcPorts = map[string]string{"ipmi": "623", "redfish": "443", "https": "443", "http": "80"}

// SameAs reports whether two BMCs power the same machine, as far as their addresses show: names are not resolved. An
// address without a path is that of the only system of its service.
func (b *BMC) SameAs(o *BMC) bool {
	service, system := b.Endpoint()
	otherService, otherSystem := o.Endpoint()
	return service == otherService && (system == otherSystem || system == "" || otherSystem == "")
}

// Keys returns the keys under which a BMC is found, and those under which all are that are the same: see SameAs. There
// are few of the latter, however many systems a service has.
func (b *BMC) Keys() (own, same []string) {
	service, system := b.Endpoint()
	at := service + "/" + system // without a system, the key of all that have one
	if system == "" {
		return []string{service}, []string{service, at}
	}
	return []string{at, service + "/"}, []string{service, at}
}
