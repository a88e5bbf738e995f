// Package boot holds the rules of booting from the network: what a machine's firmware is told by DHCP ([Decide]), what
// the machine shall boot ([Choose]), and the iPXE script that does it ([Script]). It is pure; internal/netboot brings the
// facts and sends the answers.
//
// A machine comes by several times in one boot. Its firmware gets iPXE as its boot file; iPXE gets the URL of its script;
// the script gets kernel and initramfs, or hands over to the disk.
package boot

import (
	"net/netip"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/ipam"
)

// Facts are what Decide rests on.
type Facts struct {
	MAC     string          // of the port that asks, in its one form
	Client  Client          // who sends the packet
	Network *trivet.Network // nil: none of ours
	Known   bool            // a machine's record has the MAC
	Proxy   bool            // it came to the proxy's port, 4011
	Head    netip.Addr      // this head's address for the client
	URL     string          // of this head's boot door, "http://10.0.0.1:8080"
}

// Mode is how far the answer goes.
type Mode int

// The modes.
const (
	Silent    Mode = iota
	Serve          // an address, its network, and what to boot
	ProxyOnly      // what to boot; the address is another server's business
)

// Decision is what the client is told.
type Decision struct {
	Mode Mode
	Why  string // of silence, for people
	Use  string // which ranges its address may be from: ipam.Known or ipam.Discovery

	Class      Loader     // option 60: firmware heeds only answers of its own class
	NextServer netip.Addr // siaddr and option 66: the TFTP server
	BootFile   string     // option 67: a TFTP name or a URL; empty for what does not boot from the network
}

// Decide says what a DHCP client is told. What its machine is doing does not matter here: whoever boots from the network
// gets iPXE and a script, which is where that is decided.
func Decide(f Facts) Decision {
	d := Decision{Use: ipam.Known}
	if !f.Known {
		d.Use = ipam.Discovery
	}
	switch {
	case f.Network == nil:
		return Decision{Why: "no network has the address it came by"}
	case f.Network.Spec.DHCP == "off":
		return Decision{Why: "DHCP is off in network " + f.Network.Name}
	case !f.Known && f.Network.Spec.Unknown == "ignore":
		return Decision{Why: "unknown machines are ignored in network " + f.Network.Name}
	case f.Network.Spec.DHCP != "proxy" && !f.Proxy:
		d.Mode = Serve
	case f.Client.Loader == OtherLoader && !f.Client.IPXE:
		return Decision{Why: "it does not boot from the network"}
	default:
		d.Mode = ProxyOnly
	}
	d.boot(f)
	return d
}

// boot names the client's next file.
func (d *Decision) boot(f Facts) {
	switch {
	case f.Client.IPXE && !f.Client.NoHTTP:
		d.Class, d.NextServer, d.BootFile = PXELoader, f.Head, f.URL+ScriptPath(f.MAC)
	case f.Client.Loader == HTTPLoader:
		if file := f.Client.Arch.File(); file != "" {
			d.Class, d.BootFile = HTTPLoader, f.URL+"/ipxe/"+file
		}
	case f.Client.Loader == PXELoader, f.Client.IPXE:
		if file := f.Client.Arch.File(); file != "" {
			d.Class, d.NextServer, d.BootFile = PXELoader, f.Head, file
		}
	}
}

// Paths of the boot door, each followed by a MAC with hyphens; those of files by "/" and a digest.
const (
	scriptPath = "/boot/script/"
	kernelPath = "/boot/kernel/"
	initrdPath = "/boot/initrd/"
)

// ScriptPath is where a port finds its script.
func ScriptPath(mac string) string { return scriptPath + hyphens(mac) }

func hyphens(mac string) string { return strings.ReplaceAll(mac, ":", "-") }
