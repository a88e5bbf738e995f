package osinit

import (
	"net"
	"strings"
)

// Cmdline is the kernel's command line: the last value of each key, "" for keys without one. Trivet's own keys are
//
//	trivet.url      API URLs of the heads, comma-separated
//	trivet.ca       pin of the cluster's CA
//	trivet.token    boot token
//	trivet.machine  the machine's name; also its hostname until it is installed
//	trivet.journal  where the agent keeps its journal
//	BOOTIF          MAC of the port that the firmware booted from; with colons or, as PXELINUX writes it, 01-aa-bb-...
type Cmdline map[string]string

// ParseCmdline splits a command line as the kernel does: at blanks outside of double quotes.
func ParseCmdline(line string) Cmdline {
	c := Cmdline{}
	var word strings.Builder
	quoted := false
	flush := func() {
		if key, value, _ := strings.Cut(word.String(), "="); key != "" {
			c[key] = value
		}
		word.Reset()
	}
	for _, r := range line {
		switch {
		case r == '"':
			quoted = !quoted
		case !quoted && (r == ' ' || r == '\t' || r == '\n' || r == '\r'):
			flush()
		default:
			word.WriteRune(r)
		}
	}
	flush()
	return c
}

// List returns the non-empty parts of a comma-separated value.
func (c Cmdline) List(key string) []string {
	return strings.FieldsFunc(c[key], func(r rune) bool { return r == ',' })
}

// BootMAC returns the MAC of the port that the firmware booted from; nil if it is not given.
func (c Cmdline) BootMAC() net.HardwareAddr {
	value := c["BOOTIF"]
	if len(value) == len("01-aa-bb-cc-dd-ee-ff") {
		value = value[3:] // the ARP hardware type
	}
	mac, err := net.ParseMAC(value)
	if err != nil || len(mac) != 6 {
		return nil
	}
	return mac
}
