package dhcp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// frames sends IP packets to hardware addresses, without ARP. It needs CAP_NET_RAW.
type frames struct {
	file *os.File
	raw  syscall.RawConn
}

func openFrames() (*frames, error) {
	// Protocol 0: it receives nothing.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := &frames{file: os.NewFile(uintptr(fd), "frames")}
	if f.raw, err = f.file.SyscallConn(); err != nil {
		return nil, errors.Join(err, f.file.Close())
	}
	return f, nil
}

// send sends payload as UDP on the interface. It never waits.
func (f *frames) send(ifindex int, mac net.HardwareAddr, from, to netip.AddrPort, payload []byte) error {
	link := &unix.SockaddrLinklayer{Protocol: hostToNet(unix.ETH_P_IP), Ifindex: ifindex, Halen: uint8(len(mac))}
	copy(link.Addr[:], mac)
	b := appendUDP(make([]byte, 0, ipUDPHeader+maxMax), from, to, payload)
	var err error
	if outer := f.raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), b, 0, link) }); outer != nil {
		return outer
	}
	return err
}

func hostToNet(v uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, v))
}

// appendUDP appends IP header (RFC 791), UDP header (RFC 768) and payload.
func appendUDP(b []byte, from, to netip.AddrPort, payload []byte) []byte {
	src, dst := from.Addr().As4(), to.Addr().As4()
	size := len(payload) + 8
	ip := len(b)
	b = append(b, 0x45, 0x10) // version 4, five words; low delay
	b = binary.BigEndian.AppendUint16(b, uint16(size+20))
	b = append(b, 0, 0, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0) // do not fragment; 64 hops; checksum follows
	b = append(append(b, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(b[ip+10:], ^sum(0, b[ip:]))

	udp := len(b)
	b = binary.BigEndian.AppendUint16(b, from.Port())
	b = binary.BigEndian.AppendUint16(b, to.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(size))
	b = append(append(b, 0, 0), payload...)
	check := ^sum(uint32(sum(unix.IPPROTO_UDP+uint32(size), b[ip+12:udp])), b[udp:])
	if check == 0 {
		check = 0xffff // 0 means no checksum
	}
	binary.BigEndian.PutUint16(b[udp+6:], check)
	return b
}

// sum returns the ones' complement sum of b's 16-bit words, added to start.
func sum(start uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		start += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		start += uint32(b[0]) << 8
	}
	for start > 0xffff {
		start = start>>16 + start&0xffff
	}
	return uint16(start)
}
