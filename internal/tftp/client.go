package tftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/trivet-project/trivet"
)

// getRetries is how often Get asks again for the same packet.
const getRetries = 5

// Get reads a file from the server (usually port 69) into w and returns the number of bytes written. Options hold what to
// ask for; Timeout (1 s if zero) is also how long a packet is awaited. A refusal is a *PeerError.
func Get(ctx context.Context, server netip.AddrPort, name string, w io.Writer, o Options) (int64, error) {
	return get(ctx, server, name, w, o, orDefault(o.Timeout, time.Second))
}

func get(ctx context.Context, server netip.AddrPort, name string, w io.Writer, o Options, wait time.Duration) (int64,
	error) {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 0, fmt.Errorf("tftp: get %s from %s: %w", name, server, err)
	}
	defer conn.Close()
	// Room for a window; the kernel's own bound holds.
	_ = conn.SetReadBuffer(4 * maxWindowBytes)
	g := &getting{conn: conn, server: server, w: w, asked: o, wait: wait}
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })()
	if err := g.run(ctx, name); err != nil {
		return g.n, fmt.Errorf("tftp: get %s from %s: %w", name, server, err)
	}
	return g.n, nil
}

// getting is one Get.
type getting struct {
	conn   *net.UDPConn
	server netip.AddrPort // where requests go
	tid    netip.AddrPort // where the file comes from, once known
	w      io.Writer
	asked  Options
	agreed Options
	wait   time.Duration

	out   []byte // the packet to send again when nothing comes
	tries int    // since the last progress
	got   int64  // blocks received, in order
	acked int64  // the last block acknowledged
	gap   bool   // told of one since the last progress
	n     int64  // bytes written

	due, armed time.Time // as in transfer
}

func (g *getting) run(ctx context.Context, name string) error {
	g.asked.Size = 0
	if err := g.send(request{name: name, options: g.asked}.append(nil)); err != nil {
		return err
	}
	in := make([]byte, headerSize+max(g.asked.block(), maxRequest))
	for {
		b, err := g.receive(ctx, in)
		if err != nil {
			return err
		}
		done, err := g.take(b)
		if done || err != nil {
			return err
		}
	}
}

// receive gives the next packet from the server, sending the last again when none comes.
func (g *getting) receive(ctx context.Context, in []byte) ([]byte, error) {
	for {
		if g.armed.IsZero() || g.armed.After(g.due) {
			g.armed = g.due
			g.conn.SetReadDeadline(g.due)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n, from, err := g.conn.ReadFromUDPAddrPort(in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			g.armed = time.Time{}
			if time.Now().Before(g.due) {
				continue
			}
			if err := g.timedOut(); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case g.known(from):
			return in[:n], nil
		default: // RFC 1350 section 4: a stranger is told so, and disturbs nothing
			_, _ = g.conn.WriteToUDPAddrPort(appendError(nil, CodeUnknownTID, "unknown transfer ID"), from)
		}
	}
}

// known takes the first port that the server answers from as the transfer's, and no other.
func (g *getting) known(from netip.AddrPort) bool {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if !g.tid.IsValid() {
		if from.Addr() != g.server.Addr().Unmap() {
			return false
		}
		g.tid = from
	}
	return from == g.tid
}

func (g *getting) timedOut() error {
	if g.tries++; g.tries > getRetries {
		return fmt.Errorf("%w to %d packets: %w", errSilent, g.tries, trivet.ErrUnavailable)
	}
	if g.got > g.acked {
		g.ack()
	}
	return g.send(g.out)
}

// send also remembers.
func (g *getting) send(b []byte) error {
	g.out = b
	g.due = time.Now().Add(g.wait << g.tries)
	to := g.tid
	if !to.IsValid() {
		to = g.server
	}
	_, err := g.conn.WriteToUDPAddrPort(b, to)
	return err
}

// ack prepares the ACK of all that was received.
func (g *getting) ack() {
	if cap(g.out) < headerSize {
		g.out = make([]byte, headerSize)
	}
	g.out = g.out[:headerSize]
	putHeader(g.out, opAck, uint16(g.got))
	g.acked = g.got
}

// take handles one packet.
func (g *getting) take(b []byte) (done bool, err error) {
	switch operation(b) {
	case opError:
		return true, parseError(b)
	case opOACK:
		return false, g.takeOACK(parseOptions(b[2:]))
	case opData:
		return g.takeData(b)
	}
	return false, nil
}

func (g *getting) takeOACK(o Options) error {
	if g.got > 0 {
		return nil // a late copy
	}
	if o.BlockSize > g.asked.BlockSize || o.Window > g.asked.Window {
		_ = g.send(appendError(nil, CodeOption, "more than asked"))
		return fmt.Errorf("server wants blksize %d, windowsize %d: %w", o.BlockSize, o.Window, trivet.ErrInvalid)
	}
	g.agreed, g.tries = o, 0
	g.ack()
	return g.send(g.out)
}

func (g *getting) takeData(b []byte) (done bool, err error) {
	block, ok := blockNumber(b)
	if !ok || len(b)-headerSize > g.agreed.block() {
		return false, nil
	}
	if block != uint16(g.got+1) {
		return false, g.unexpected(block)
	}
	n, err := g.w.Write(b[headerSize:])
	g.n += int64(n)
	if err != nil {
		_ = g.send(appendError(nil, CodeUndefined, "cannot keep it"))
		return true, err
	}
	g.got, g.tries, g.gap = g.got+1, 0, false
	done = len(b)-headerSize < g.agreed.block()
	if done || g.got-g.acked >= int64(g.agreed.window()) {
		g.ack()
		return done, g.send(g.out)
	}
	g.due = time.Now().Add(g.wait)
	return false, nil
}

// unexpected answers a block out of order: one ahead shows a gap in a window, one of before that our ACK may be lost,
// unless the window is still coming in. Of a whole window of such blocks only the first is answered.
func (g *getting) unexpected(block uint16) error {
	ahead := int16(block-uint16(g.got)) > 0
	if !ahead && g.got > g.acked || g.gap && g.agreed.window() > 1 {
		return nil
	}
	g.gap = true
	g.ack()
	return g.send(g.out)
}
