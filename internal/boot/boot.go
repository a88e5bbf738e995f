// Package boot holds the rules of network boot: how a DHCP client is answered ([Decide]), what a machine boots
// ([Choose]), and the iPXE script that boots it ([Script]). It is pure: internal/netboot collects the facts and
// sends the answers.
//
// A machine sends several requests in one boot. Its firmware gets iPXE as its boot file; iPXE gets the URL of its
// script; the script loads kernel and initramfs, or boots the disk.
package boot

import (
	"net/netip"
	"strings"

	"github.com/trivet-project/trivet"
)

// Facts are the input of Decide.
type Facts struct {
	MAC     string          // of the client's port, canonical
	Client  Client          // the sender of the packet
	Network *trivet.Network // that the client is attached to; nil: none that has a record
	Known   bool            // a machine's record has the MAC
	Proxy   bool            // the packet was sent to the proxy port, 4011
	Head    netip.Addr      // this head's address for the client
	URL     string          // of this head's boot server, "http://10.0.0.1:8080"
	HTTPS   bool            // it serves HTTPS at the same port
}

// Mode is how much the answer holds.
type Mode int

// The modes.
const (
	Silent    Mode = iota
	Serve          // an address, its network, and what to boot
	ProxyOnly      // what to boot; another server assigns the address
)

// Decision is how the client is answered.
type Decision struct {
	Mode   Mode
	Reason string // of silence, for operators

	Class      Loader     // option 60: firmware accepts only answers of its own class
	NextServer netip.Addr // siaddr and option 66: the TFTP server
	BootFile   string     // option 67: a TFTP name or a URL; empty for a client that does not netboot
}

// Decide returns how a DHCP client is answered. It does not depend on the state of the machine: each client that
// netboots gets iPXE and the URL of a script, and the script depends on the state.
func Decide(f Facts) Decision {
	var d Decision
	switch {
	case f.Network == nil:
		return Decision{Reason: "no network contains the address of the client's link"}
	case f.Network.Spec.DHCPOrDefault() == "off":
		return Decision{Reason: "DHCP is off in network " + f.Network.Name}
	case !f.Known && f.Network.Spec.UnknownOrDefault() == "ignore":
		return Decision{Reason: "unknown machines are ignored in network " + f.Network.Name}
	case f.Network.Spec.DHCPOrDefault() != "proxy" && !f.Proxy:
		d.Mode = Serve
	case f.Client.Loader == OtherLoader && !f.Client.IPXE:
		return Decision{Reason: "it does not boot from the network"}
	default:
		d.Mode = ProxyOnly
	}
	d.boot(f)
	return d
}

// boot sets the client's next file.
func (d *Decision) boot(f Facts) {
	switch {
	case f.Client.IPXE && !f.Client.NoHTTP:
		d.Class, d.NextServer, d.BootFile = PXELoader, f.Head, f.url()+ScriptPath(f.MAC)
	case f.Client.Loader == HTTPLoader:
		if file := f.Client.Arch.File(); file != "" {
			d.Class, d.BootFile = HTTPLoader, f.url()+"/ipxe/"+file
		}
	case f.Client.Loader == PXELoader, f.Client.IPXE:
		if file := f.Client.Arch.File(); file != "" {
			d.Class, d.NextServer, d.BootFile = PXELoader, f.Head, file
		}
	}
}

// url returns the URL of the boot server for the client.
func (f *Facts) url() string {
	if f.HTTPS && f.Network.Spec.BootHTTPS && f.Client.HTTPS {
		return "https" + strings.TrimPrefix(f.URL, "http")
	}
	return f.URL
}

// Paths of the boot server, each followed by a MAC with hyphens; those of files by "/" and a digest.
const (
	scriptPath = "/boot/script/"
	kernelPath = "/boot/kernel/"
	initrdPath = "/boot/initrd/"
)

// ScriptPath returns the path of a port's script.
func ScriptPath(mac string) string { return scriptPath + hyphens(mac) }

// KernelPath returns the path of a kernel for a port.
func KernelPath(mac, digest string) string { return kernelPath + hyphens(mac) + "/" + digest }

func hyphens(mac string) string { return strings.ReplaceAll(mac, ":", "-") }
