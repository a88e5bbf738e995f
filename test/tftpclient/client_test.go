package tftpclient

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"
)

// FuzzAnswer: the client survives any packet.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x00\x03\x00\x01data"))
	f.Add([]byte("\x00\x05\x00\x01File not found\x00"))
	f.Add([]byte("\x00\x06blksize\x001456\x00windowsize\x004\x00"))
	f.Add([]byte("\x00\x05\x00"))
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	server := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	f.Fuzz(func(t *testing.T, b []byte) {
		c := Client{Options: Options{BlockSize: 1456, Window: 4}, Wait: time.Second}
		x := newTransfer(c, conn, netip.AddrPortFrom(server.Addr(), server.Port()), io.Discard)
		if _, err := x.handle(b); err != nil && err.Error() == "" {
			t.Fatal("an error without text")
		}
		if x.received > 1 || x.agreed.BlockSize > 1456 || x.agreed.Window > 4 {
			t.Fatalf("got %+v", x)
		}
	})
}
