package e2e_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/lab/vm"
)

// cable connects a machine's card and the switch: every frame passes through the test, which may hold it while it
// does something to a head. So what has to happen between two packets does, however busy the computer is.
type cable struct {
	card  *os.File // the card's end, for QEMU
	ends  [2]*os.File
	pumps sync.WaitGroup

	mu      sync.Mutex   // held while a frame is inspected: the other direction waits, too
	observe func(*frame) // guarded by mu
}

const maxFrame = 2048 // nothing here is larger than an Ethernet frame

// layCable lays a cable to the network's switch. observe is called with each IPv4 packet before it passes.
func layCable(t *testing.T, n *vm.Network, observe func(*frame)) *cable {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{card: os.NewFile(uintptr(fds[0]), "card"), observe: observe}
	c.ends[0] = os.NewFile(uintptr(fds[1]), "cable")
	t.Cleanup(func() { c.ends[0].Close(); c.card.Close(); c.pumps.Wait() })
	if err := n.Do(func() (err error) { c.ends[1], err = newTap("machine"); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.ends[1].Close() })
	out, err := exec.Command("ip", "-n", n.Name(), "link", "set", "machine", "master", "lab0", "up").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.pumps.Go(func() { c.pump(c.ends[0], c.ends[1]) })
	c.pumps.Go(func() { c.pump(c.ends[1], c.ends[0]) })
	return c
}

// newTap makes a network card whose frames a program sends and receives.
func newTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	r, err := unix.NewIfreq(name)
	if err == nil {
		r.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, r)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// pump carries frames one way until an end is closed. One that cannot be sent is lost, as on any cable.
func (c *cable) pump(from, to *os.File) {
	buf := make([]byte, maxFrame)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		c.inspect(buf[:n])
		if _, err := to.Write(buf[:n]); errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

func (c *cable) inspect(b []byte) {
	f, ok := parseFrame(b)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observe(f)
}

// frame is an IPv4 packet of UDP or TCP in its Ethernet frame.
type frame struct {
	from, to       net.HardwareAddr
	source, target netip.AddrPort
	tcp            bool
	payload        []byte // of the UDP or TCP packet
	// sender and receiver are the head that it comes from or goes to; nil: none, or all.
	sender, receiver *head
}

const (
	etherHeader = 14
	udpHeader   = 8
	tcpHeader   = 20
)

// parseFrame is false for all that is no such frame.
func parseFrame(b []byte) (*frame, bool) {
	if len(b) < etherHeader+20 || be16(b[12:]) != unix.ETH_P_IP {
		return nil, false
	}
	f, ip := &frame{to: b[:6], from: b[6:12]}, b[etherHeader:]
	head, total := int(ip[0]&15)*4, int(be16(ip[2:]))
	if head < 20 || total < head || len(ip) < total || be16(ip[6:])&0x3fff != 0 { // a fragment
		return nil, false
	}
	segment, skip := ip[head:total], udpHeader
	switch ip[9] {
	case unix.IPPROTO_UDP:
	case unix.IPPROTO_TCP:
		if f.tcp = true; len(segment) < tcpHeader {
			return nil, false
		}
		skip = int(segment[12]>>4) * 4
	default:
		return nil, false
	}
	if len(segment) < max(skip, udpHeader) {
		return nil, false
	}
	port := func(address []byte, at int) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address)), be16(segment[at:]))
	}
	f.source, f.target, f.payload = port(ip[12:16], 0), port(ip[16:20], 2), segment[skip:]
	return f, true
}

// be16 is the number that b begins with.
func be16(b []byte) uint16 { return uint16(b[0])<<8 | uint16(b[1]) }
