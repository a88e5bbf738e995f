package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// wireCapacity is how many frames are under way on a wire in one direction at most. More are lost.
const wireCapacity = 4096

// frameBytes is more than a frame has with what the network card would still do with it, such as cutting it to size.
const frameBytes = 128 << 10

// delay puts a wire between a port and the switch that brings each frame so much later, in their order. The kernel
// could do it by netem, which not all have.
func (f *fabric) delay(port string, late time.Duration) (undo func() error, err error) {
	near, far := port+"-near", port+"-far"
	unplug := func() error {
		return errors.Join(ip("link", "delete", near), ip("link", "set", port, "arp", "on", "master", switchName))
	}
	err = errors.Join(
		// this host answers nothing that it receives there
		ip("link", "add", far, "arp", "off", "type", "veth", "peer", "name", near),
		ip("link", "set", port, "nomaster", "arp", "off"),
		ip("link", "set", far, "up"), ip("link", "set", near, "master", switchName, "up"))
	if err != nil {
		return nil, errors.Join(err, unplug())
	}
	inside, err := openLink(port)
	if err != nil {
		return nil, errors.Join(err, unplug())
	}
	outside, err := openLink(far)
	if err != nil {
		return nil, errors.Join(err, inside.Close(), unplug())
	}
	carry(inside, outside, late)
	carry(outside, inside, late)
	return func() error { return errors.Join(inside.Close(), outside.Close(), unplug()) }, nil
}

// openLink returns a file that reads all frames of a network interface, one by one, and sends what is written. Each
// begins with the kernel's virtio_net_hdr.
func openLink(name string) (*os.File, error) {
	card, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: card.Index}))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("all frames of %s: %w", name, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// carry copies frames from one end to the other until one is closed.
func carry(from, to *os.File, late time.Duration) {
	type frame struct {
		due  time.Time
		data []byte
	}
	under := make(chan frame, wireCapacity)
	go func() {
		defer close(under)
		buf := make([]byte, frameBytes)
		for {
			n, err := from.Read(buf)
			if errors.Is(err, os.ErrClosed) {
				return
			}
			if err != nil { // the link is down for a moment
				time.Sleep(time.Millisecond)
				continue
			}
			select {
			case under <- frame{time.Now().Add(late), append([]byte(nil), buf[:n]...)}:
			default:
			}
		}
	}()
	go func() {
		for f := range under {
			time.Sleep(time.Until(f.due))
			_, _ = to.Write(f.data) // what does not pass is lost
		}
	}()
}
