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
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
)

// ClientConfig is who asks for an address, and what is sent besides the indispensable.
type ClientConfig struct {
	MAC net.HardwareAddr
	// Relay, if set, is the address of conn that this client plays its own relay at: answers come to conn's port (RFC
	// 8357), so that clients need neither privilege nor an interface.
	Relay netip.Addr
	// Options go into each packet: class, architecture, user class, UUID.
	Options []Option
	// Timeout is the time before the first retransmission, which doubles; 0 means 1 s. Tries are the packets sent of one
	// kind before giving up; 0 means 5.
	Timeout  time.Duration
	Attempts int
}

// ErrRefused is a server's NAK.
var ErrRefused = errors.New("refused by the server")

// Exchange gets an address by DISCOVER, OFFER, REQUEST and ACK over conn, with the server or with whoever answers a
// broadcast. It takes the first offer that has an address. Silence is trivet.ErrUnavailable.
func Exchange(ctx context.Context, conn net.PacketConn, server net.Addr, c ClientConfig) (*Lease, error) {
	x, err := newExchange(conn, server, c)
	if err == nil {
		var lease *Lease
		if lease, err = x.dora(ctx); err == nil {
			return lease, nil
		}
	}
	return nil, fmt.Errorf("dhcp: address for %s: %w", c.MAC, err)
}

// Renew asks for more time on a lease, of its server by unicast, or of any when the server does not answer and Exchange's
// broadcast address is given.
func Renew(ctx context.Context, conn net.PacketConn, server net.Addr, c ClientConfig, lease *Lease) (*Lease, error) {
	x, err := newExchange(conn, server, c)
	if err == nil {
		x.clientIP = lease.Address.Addr()
		var ack *dhcpv4.DHCPv4
		if ack, err = x.ask(ctx, Request, nil, Ack); err == nil {
			return newLease(ack), nil
		}
	}
	return nil, fmt.Errorf("dhcp: renew %s for %s: %w", lease.Address, c.MAC, err)
}

// exchange is the client's side of one transaction.
type exchange struct {
	ClientConfig
	conn     net.PacketConn
	server   net.Addr
	xid      dhcpv4.TransactionID
	begun    time.Time
	clientIP netip.Addr
	in       []byte
}

func newExchange(conn net.PacketConn, server net.Addr, c ClientConfig) (*exchange, error) {
	if len(c.MAC) == 0 || len(c.MAC) > 16 {
		return nil, fmt.Errorf("hardware address of %d bytes: %w", len(c.MAC), trivet.ErrInvalid)
	}
	if c.Timeout <= 0 {
		c.Timeout = time.Second
	}
	if c.Attempts <= 0 {
		c.Attempts = 5
	}
	x := &exchange{ClientConfig: c, conn: conn, server: server, begun: time.Now(), in: make([]byte, maxReceive)}
	rand.Read(x.xid[:])
	return x, nil
}

func (x *exchange) dora(ctx context.Context) (*Lease, error) {
	offer, err := x.ask(ctx, Discover, nil, Offer)
	if err != nil {
		return nil, err
	}
	ack, err := x.ask(ctx, Request, []Option{
		Addrs(OptRequestedIP, addr4(offer.YourIPAddr)),
		Addrs(OptServerID, addr4(offer.Options[OptServerID])),
	}, Ack)
	if err != nil {
		return nil, err
	}
	return newLease(ack), nil
}

// ask sends a message until the wanted answer comes.
func (x *exchange) ask(ctx context.Context, t Type, extra []Option, want Type) (*dhcpv4.DHCPv4, error) {
	defer context.AfterFunc(ctx, func() { x.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for try := range x.Attempts {
		if _, err := x.conn.WriteTo(x.packet(t, extra), x.server); err != nil {
			return nil, fmt.Errorf("send %s: %w", t, err)
		}
		x.conn.SetReadDeadline(time.Now().Add(jitter(x.Timeout << try)))
		p, err := x.receive(ctx, want)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return p, err
		}
	}
	return nil, fmt.Errorf("no answer to %d %s: %w", x.Attempts, t, trivet.ErrUnavailable)
}

// receive reads until the wanted answer or a NAK comes or the read deadline passes.
func (x *exchange) receive(ctx context.Context, want Type) (*dhcpv4.DHCPv4, error) {
	for {
		if ctx.Err() != nil { // looked at after the deadline is set, which may have undone the one that ask set
			return nil, ctx.Err()
		}
		n, _, err := x.conn.ReadFrom(x.in)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		p, ok := x.mine(x.in[:n])
		switch {
		case !ok:
		case p.MessageType() == want && (want != Offer || addr4(p.YourIPAddr).IsValid()):
			return p, nil
		case p.MessageType() == Nak && want == Ack:
			return nil, fmt.Errorf("%w: %q", ErrRefused, text(p.Options[OptMessage]))
		}
	}
}

// mine parses an answer to this exchange.
func (x *exchange) mine(b []byte) (*dhcpv4.DHCPv4, bool) {
	if len(b) < headerSize {
		return nil, false
	}
	p, err := dhcpv4.FromBytes(b)
	if err != nil || p.OpCode != dhcpv4.OpcodeBootReply || p.TransactionID != x.xid {
		return nil, false
	}
	return p, p.ClientHWAddr.String() == x.MAC.String() && addr4(p.Options[OptServerID]).IsValid()
}

// packet writes a client's message.
func (x *exchange) packet(t Type, extra []Option) []byte {
	b := make([]byte, headerSize, maxMax)
	b[0], b[1], b[2] = byte(dhcpv4.OpcodeBootRequest), 1, byte(len(x.MAC))
	copy(b[4:], x.xid[:])
	binary.BigEndian.PutUint16(b[atSecs:], uint16(min(time.Since(x.begun)/time.Second, 1<<16-1)))
	putAddr(b[atCiaddr:], x.clientIP)
	copy(b[atChaddr:], x.MAC)
	copy(b[atCookie:], cookie[:])
	w := writer{b: b, limit: maxMax - 1}
	w.put(OptType, []byte{byte(t)})
	w.put(OptMaxSize, binary.BigEndian.AppendUint16(nil, maxMax))
	w.put(OptRequestList, []byte{OptSubnetMask, OptRouter, OptDNS, OptHostName, OptDomainName, OptNTP, OptMTU, OptLease,
		OptServerID, OptClass, OptVendor, OptTFTPServer, OptBootFile})
	for _, o := range append(extra, x.Options...) {
		w.put(o.Code, o.Value)
	}
	if x.Relay.IsValid() {
		w.b[3] = 1 // hops
		putAddr(w.b[atGiaddr:], x.Relay)
		w.put(OptRelay, []byte{RelaySourcePort, 0})
	}
	w.b = append(w.b, 255)
	for len(w.b) < minSend {
		w.b = append(w.b, 0)
	}
	return w.b
}

// jitter keeps machines that were powered on together from asking in step: it gives 7/8 to 9/8 of d.
func jitter(d time.Duration) time.Duration {
	var v [2]byte
	rand.Read(v[:])
	return d*7/8 + d/4*time.Duration(binary.BigEndian.Uint16(v[:]))/(1<<16)
}
