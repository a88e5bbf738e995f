package osinit

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/dhcp"
)

// A port whose routes cannot be set keeps no address: the next port may get the same one.
func TestFailedPortHasNoAddress(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine, and with it the namespaces
		err := errors.Join(unix.Unshare(unix.CLONE_NEWNET|unix.CLONE_NEWNS),
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("tmpfs", "/etc", "tmpfs", 0, "")) // the installer writes /etc/resolv.conf
		if err != nil {
			t.Errorf("new namespaces: %v (run as root)", err)
			return
		}
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "port0"}, PeerName: "switch0"}
		if err := netlink.LinkAdd(link); err != nil {
			t.Error(err)
			return
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Error(err)
			return
		}
		address := netip.MustParsePrefix("10.0.0.9/24")
		wrong := dhcp.Route{To: netip.MustParsePrefix("10.1.0.5/16"), Gateway: netip.MustParseAddr("10.0.0.1")}
		p, err := configure(link, &dhcp.Lease{Address: address, Routes: []dhcp.Route{wrong}})
		if err == nil {
			t.Errorf("a route to a host and a network: %+v", p)
		}
		if left, err := netlink.AddrList(link, netlink.FAMILY_V4); err != nil || len(left) > 0 {
			t.Errorf("the port has %v, %v", left, err)
		}
	}()
	<-done
}
