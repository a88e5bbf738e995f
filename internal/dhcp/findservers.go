package dhcp

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Answer is the offer of a DHCP server to FindServers.
type Answer struct {
	Server  netip.Addr       // its identifier
	MAC     net.HardwareAddr // the host that sent the frame: the server, or a relay
	Address netip.Addr       // what it offers; not valid: only a boot file
}

// FindServers broadcasts one DHCPDISCOVER on an interface, as firmware does, and calls found with each answer until the
// time is over. It takes no lease and does not use the port of clients. It needs CAP_NET_RAW.
func FindServers(ctx context.Context, name string, window time.Duration, found func(Answer)) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	x, err := newExchange(nil, nil, ClientConfig{MAC: newMAC(), Options: []Option{
		Text(OptClass, "PXEClient:Arch:00007:UNDI:003016"), {Code: OptArch, Value: []byte{0, 7}}}})
	if err != nil {
		return err
	}
	in, err := listenFrames(i.Index)
	if err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	defer in.file.Close()
	defer context.AfterFunc(ctx, func() { _ = in.file.SetReadDeadline(time.Unix(1, 0)) })()
	if err := in.file.SetReadDeadline(x.started.Add(window)); err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	from, to := netip.AddrPortFrom(netip.IPv4Unspecified(), ClientPort), netip.AddrPortFrom(broadcast, ServerPort)
	all := net.HardwareAddr{255, 255, 255, 255, 255, 255}
	if err := in.send(i.Index, all, from, to, x.packet(Discover, nil)); err != nil {
		return fmt.Errorf("dhcp: interface %s: %w", name, err)
	}
	for ctx.Err() == nil {
		payload, mac, err := in.receive(x.in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil
		case err != nil:
			return fmt.Errorf("dhcp: interface %s: %w", name, err)
		}
		if p, ok := x.parse(payload); ok && p.MessageType() == Offer {
			found(Answer{Server: addr4(p.Options[OptServerID]), MAC: mac, Address: addr4(p.YourIPAddr)})
		}
	}
	return ctx.Err()
}

// newMAC returns a random MAC, of no machine: the host of a head may itself be one. It is another each time, as servers
// take a second packet of a client for a retransmit.
func newMAC() net.HardwareAddr {
	mac := make(net.HardwareAddr, 6)
	rand.Read(mac)
	mac[0] = mac[0]&^1 | 2 // locally administered, of one host
	return mac
}

// listenFrames opens a socket for the UDP packets to clients that arrive on an interface, at any address.
func listenFrames(ifindex int) (*frames, error) {
	f, err := openFrames()
	if err != nil {
		return nil, err
	}
	var failed error
	err = f.raw.Control(func(fd uintptr) {
		program := unix.SockFprog{Len: uint16(len(toClients)), Filter: &toClients[0]}
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program)
		if failed == nil {
			link := &unix.SockaddrLinklayer{Protocol: hostToNet(unix.ETH_P_IP), Ifindex: ifindex}
			failed = unix.Bind(int(fd), link)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, errors.Join(err, f.file.Close())
	}
	return f, nil
}

// toClients is a filter of the kernel: UDP to the port of clients, in the first fragment.
var toClients = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 9},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.IPPROTO_UDP, Jf: 6},
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: 6},
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x1fff, Jt: 4},
	{Code: unix.BPF_LDX | unix.BPF_B | unix.BPF_MSH, K: 0},
	{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_IND, K: 2},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: ClientPort, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0xffff},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

// receive returns the payload of the next UDP packet that the filter passes, in b, and the sender of its frame.
func (f *frames) receive(b []byte) (payload []byte, mac net.HardwareAddr, err error) {
	for {
		var n int
		var from unix.Sockaddr
		var failed error
		err := f.raw.Read(func(fd uintptr) bool {
			n, from, failed = unix.Recvfrom(int(fd), b, 0)
			return !errors.Is(failed, syscall.EAGAIN)
		})
		if err = errors.Join(err, failed); err != nil {
			return nil, nil, err
		}
		link, ok := from.(*unix.SockaddrLinklayer)
		if payload := udpPayload(b[:n]); ok && payload != nil {
			return payload, slices.Clone(link.Addr[:min(int(link.Halen), len(link.Addr))]), nil
		}
	}
}

// udpPayload returns the payload of an IP packet with UDP; nil if it is cut off.
func udpPayload(b []byte) []byte {
	if len(b) < 20 {
		return nil
	}
	header := int(b[0]&15) * 4
	if header < 20 || len(b) < header+8 {
		return nil
	}
	size := int(binary.BigEndian.Uint16(b[header+4:]))
	if size < 8 || len(b) < header+size {
		return nil
	}
	return b[header+8 : header+size]
}
