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
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
)

// ClientConfig is the identity of a client and what it sends besides the required options.
type ClientConfig struct {
	MAC net.HardwareAddr
	// Relay, if set, is the address of conn: the client acts as its own relay there. Answers come to conn's port
	// (RFC 8357), so that clients need neither privilege nor an interface.
	Relay netip.Addr
	// Options are sent in each packet: class, architecture, user class, UUID. A requested address is sent until one is
	// offered.
	Options []Option
	// Timeout is the time before the first retransmission, which doubles; 0 means 1 s. Attempts are the packets of
	// one type that are sent; 0 means 5.
	Timeout  time.Duration
	Attempts int
}

// ErrRefused is a server's NAK.
var ErrRefused = errors.New("refused by the server")

// Exchange gets a lease by DISCOVER, OFFER, REQUEST and ACK over conn, from a server or from all that a broadcast
// address reaches. It accepts the first offer that has an address. It fails with trivet.ErrUnavailable where no
// server answers.
func Exchange(ctx context.Context, conn net.PacketConn, server net.Addr, c ClientConfig) (*Lease, error) {
	x, err := newExchange(conn, server, c)
	if err == nil {
		var lease *Lease
		if lease, err = x.dora(ctx); err == nil {
			return lease, nil
		}
	}
	return nil, fmt.Errorf("dhcp: lease for %s: %w", c.MAC, err)
}

// Renew renews a lease over conn, with its server or with all that a broadcast address reaches.
func Renew(ctx context.Context, conn net.PacketConn, server net.Addr, c ClientConfig, lease *Lease) (*Lease, error) {
	x, err := newExchange(conn, server, c)
	if err == nil {
		x.clientIP = lease.Address.Addr()
		var ack *dhcpv4.DHCPv4
		if ack, err = x.roundTrip(ctx, Request, nil, Ack); err == nil {
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
	started  time.Time
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
	x := &exchange{ClientConfig: c, conn: conn, server: server, started: time.Now(), in: make([]byte, maxReceive)}
	rand.Read(x.xid[:])
	return x, nil
}

func (x *exchange) dora(ctx context.Context) (*Lease, error) {
	offer, err := x.roundTrip(ctx, Discover, nil, Offer)
	if err != nil {
		return nil, err
	}
	ack, err := x.roundTrip(ctx, Request, []Option{
		Addrs(OptRequestedIP, addr4(offer.YourIPAddr)),
		Addrs(OptServerID, addr4(offer.Options[OptServerID])),
	}, Ack)
	if err != nil {
		return nil, err
	}
	return newLease(ack), nil
}

// roundTrip sends a message until the wanted answer comes.
func (x *exchange) roundTrip(ctx context.Context, t Type, extra []Option, want Type) (*dhcpv4.DHCPv4, error) {
	defer context.AfterFunc(ctx, func() { x.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for attempt := range x.Attempts {
		if _, err := x.conn.WriteTo(x.packet(t, extra), x.server); err != nil {
			return nil, fmt.Errorf("send %s: %w", t, err)
		}
		x.conn.SetReadDeadline(time.Now().Add(jitter(x.Timeout << attempt)))
		p, err := x.receive(ctx, want)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return p, err
		}
	}
	return nil, fmt.Errorf("no answer to %d %s: %w", x.Attempts, t, trivet.ErrUnavailable)
}

// receive reads until the wanted answer or a NAK comes, or the read deadline passes.
func (x *exchange) receive(ctx context.Context, want Type) (*dhcpv4.DHCPv4, error) {
	for {
		if ctx.Err() != nil { // checked after the caller set the deadline, which may have replaced the one of ctx's end
			return nil, ctx.Err()
		}
		n, _, err := x.conn.ReadFrom(x.in)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		p, ok := x.parse(x.in[:n])
		switch {
		case !ok:
		case p.MessageType() == want && (want != Offer || addr4(p.YourIPAddr).IsValid()):
			return p, nil
		case p.MessageType() == Nak && want == Ack:
			return nil, fmt.Errorf("%w: %q", ErrRefused, text(p.Options[OptMessage]))
		}
	}
}

// parse parses an answer. It is false for a packet that is not an answer to this exchange.
func (x *exchange) parse(b []byte) (*dhcpv4.DHCPv4, bool) {
	if len(b) < headerSize {
		return nil, false
	}
	p, err := dhcpv4.FromBytes(b)
	if err != nil || p.OpCode != dhcpv4.OpcodeBootReply || p.TransactionID != x.xid {
		return nil, false
	}
	return p, p.ClientHWAddr.String() == x.MAC.String() && addr4(p.Options[OptServerID]).IsValid()
}

// requestList is the parameter request list, option 55.
var requestList = []byte{OptSubnetMask, OptRouter, OptDNS, OptHostName, OptDomainName, OptNTP, OptMTU, OptLease,
	OptServerID, OptClass, OptVendor, OptTFTPServer, OptBootFile, OptClasslessRoute}

// packet returns a message of the client.
func (x *exchange) packet(t Type, extra []Option) []byte {
	b := make([]byte, headerSize, maxMax)
	b[0], b[1], b[2] = byte(dhcpv4.OpcodeBootRequest), 1, byte(len(x.MAC))
	copy(b[4:], x.xid[:])
	binary.BigEndian.PutUint16(b[atSecs:], uint16(min(time.Since(x.started)/time.Second, 1<<16-1)))
	putAddr(b[atCiaddr:], x.clientIP)
	copy(b[atChaddr:], x.MAC)
	copy(b[atCookie:], cookie[:])
	w := writer{b: b, limit: maxMax - 1}
	w.put(OptType, []byte{byte(t)})
	w.put(OptMaxSize, binary.BigEndian.AppendUint16(nil, maxMax))
	w.put(OptRequestList, requestList)
	for _, o := range extra {
		w.put(o.Code, o.Value)
	}
	for _, o := range x.Options {
		// A second option of a code would extend the first (RFC 3396).
		if !slices.ContainsFunc(extra, func(e Option) bool { return e.Code == o.Code }) {
			w.put(o.Code, o.Value)
		}
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

// jitter returns 7/8 to 9/8 of d, so that machines that were powered on together do not send in step.
func jitter(d time.Duration) time.Duration {
	var v [2]byte
	rand.Read(v[:])
	return d*7/8 + d/4*time.Duration(binary.BigEndian.Uint16(v[:]))/(1<<16)
}
