package trivet

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// ValidateWritten validates a record that a client writes. It knows rules that came after the first release, which
// [Record.Validate] does not: a record that breaks one may be in the store, and heads must still be able to write its
// status.
func ValidateWritten(r Record) error {
	var p problems
	p.plainLabels(r.Header().Labels)
	switch r := r.(type) {
	case *Machine:
		r.validateWritten(&p)
	case *Head:
		r.Spec.BMC.validateWritten(&p)
	case *Network:
		r.validateWritten(&p)
	case *Template:
		r.validateWritten(&p)
	case *Provision:
		r.validateWritten(&p)
	case *Secret:
		r.validateWritten(&p)
	case *Notifier:
		r.validateWritten(&p)
	}
	return errors.Join(r.Validate(), p.err())
}

func (b *BMC) validateWritten(p *problems) {
	if b == nil || b.Address == "" {
		return
	}
	const field = "spec.bmc.address"
	switch {
	case strings.Contains(b.Address, "@"): // the message is logged, and must not have the password
		p.add(field, "has a user or password; write the host only: they belong in the secret of spec.bmc.secret")
	case b.Protocol == "redfish":
		p.service(field, b.Address)
	case strings.Contains(b.Address, "://"):
		p.add(field, "%.100q is a URL, which is for protocol redfish; write %.100s", b.Address, b.Host())
	default:
		p.hostPort(field, b.Address)
	}
}

// service validates the address of a Redfish service, as its client reads it.
func (p *problems) service(field, address string) {
	text := address
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery+u.Fragment != "" {
		p.add(field, "%.100q must be a host, or a URL of a host and a path, such as "+
			"https://10.0.8.9/redfish/v1/Systems/1", address)
		return
	}
	p.hostPort(field, u.Host)
}

// onlyIPv4 refuses other addresses of servers: DHCP announces no other.
func (p *problems) onlyIPv4(field string, list []netip.Addr) {
	for i, a := range list {
		if !a.Is4() {
			p.add(fmt.Sprintf("%s[%d]", field, i), "%s is not an IPv4 address, which DHCP announces", a)
		}
	}
}

func (n *Network) validateWritten(p *problems) {
	s := &n.Spec
	n.validateSubnet(p)
	p.servers("spec.dns", s.DNS)
	p.servers("spec.ntp", s.NTP)
	p.onlyIPv4("spec.ntp", s.NTP)
	if s.Domain != "" && !domainForm.MatchString(s.Domain) {
		p.add("spec.domain", "%.80q is no DNS domain; write one such as lab.example.org", s.Domain)
	}
	for i, r := range s.Ranges {
		for j, before := range s.Ranges[:i] {
			if r.From.IsValid() && r.To.IsValid() && before.From.IsValid() && before.To.IsValid() &&
				!r.To.Less(before.From) && !before.To.Less(r.From) {
				p.add(fmt.Sprintf("spec.ranges[%d]", i), "%s to %s overlaps spec.ranges[%d], %s to %s", r.From, r.To, j,
					before.From, before.To)
			}
		}
	}
}

var domainForm = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.|$))+$`)

func (t *Template) validateWritten(p *problems) {
	for i, param := range t.Spec.Parameters {
		if slices.ContainsFunc(t.Spec.Parameters[:i], func(o Parameter) bool { return o.Name == param.Name }) {
			p.add(fmt.Sprintf("spec.parameters[%d].name", i), "%q appears twice", param.Name)
		}
	}
}

func (v *Provision) validateWritten(p *problems) {
	if v.Spec.Machine != "" && len(v.Spec.Selector) > 0 {
		p.add("spec.selector", "excludes spec.machine, which names the machine; write one of them")
	}
	if err := ValidateLabels(v.Spec.Selector); err != nil {
		p.add("spec.selector", "no machine can have these labels: %v", err)
	}
	for i, key := range v.Spec.SSHKeys {
		if words := strings.Fields(key); len(words) > 1 && !slices.ContainsFunc(words, isKeyType) &&
			!slices.ContainsFunc(words[1:], keyForm.MatchString) {
			p.add(fmt.Sprintf("spec.sshKeys[%d]", i), "has no type of a key; write the content of a file such as "+
				"~/.ssh/id_ed25519.pub")
		}
	}
}

// keyForm is a key in authorized_keys, after its type: base64 of the length of a name, and the name.
var keyForm = regexp.MustCompile(`^AAAA[A-Za-z0-9+/]{8,}={0,2}$`)

// isKeyType reports whether a word of authorized_keys is the type of a key.
func isKeyType(word string) bool {
	return strings.HasPrefix(word, "ssh-") || strings.HasPrefix(word, "ecdsa-") || strings.HasPrefix(word, "sk-")
}
