// Package tftpclient is a TFTP client for tests and benchmarks: RFC 1350 in octet mode with the options blksize
// (RFC 2348), timeout and tsize (RFC 2349) and windowsize (RFC 7440). It shares no code with the server in
// internal/tftp.
package tftpclient

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/trivet-project/trivet"
)

// receiveBuffer holds the largest window of the server.
const receiveBuffer = 512 << 10

// Client reads files.
type Client struct {
	Options Options
	Wait    time.Duration // for a packet, before a retransmission; 0 means Options.Timeout, or 1 s
	Retries int           // retransmissions of one packet before giving up; 0 means 5
}

// Get reads a file from the server (usually port 69) into w and returns the number of bytes written. A refusal is
// an *Error.
func Get(ctx context.Context, server netip.AddrPort, name string, w io.Writer, o Options) (int64, error) {
	return Client{Options: o}.Get(ctx, server, name, w)
}

// Get is the function Get with the client's configuration.
func (c Client) Get(ctx context.Context, server netip.AddrPort, name string, w io.Writer) (int64, error) {
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 0, fmt.Errorf("tftp: get %s from %s: %w", name, server, err)
	}
	defer conn.Close()
	_ = conn.SetReadBuffer(receiveBuffer) // the kernel's limit applies
	t := newTransfer(c, conn, server, w)
	defer context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })()
	if err := t.run(ctx, name); err != nil {
		return t.written, fmt.Errorf("tftp: get %s from %s: %w", name, server, err)
	}
	return t.written, nil
}

// transfer is one Get.
type transfer struct {
	conn   *net.UDPConn
	server netip.AddrPort // the destination of requests
	tid    netip.AddrPort // the server's address of this transfer, once known
	w      io.Writer
	asked  Options
	agreed Options
	wait   time.Duration
	limit  int // of retries

	out      []byte // the packet to send again
	retries  int    // since the last progress
	received int64  // blocks received, in order
	acked    int64  // the last block acknowledged
	gap      bool   // acknowledged a gap since the last progress
	written  int64  // bytes

	due, armed time.Time // when to send again; the read deadline, which is never after due
}

func newTransfer(c Client, conn *net.UDPConn, server netip.AddrPort, w io.Writer) *transfer {
	t := &transfer{conn: conn, server: server, w: w, asked: c.Options, wait: c.Wait, limit: cmp.Or(c.Retries, 5)}
	if t.wait == 0 {
		t.wait = c.Options.Timeout
	}
	if t.wait == 0 {
		t.wait = time.Second
	}
	return t
}

func (t *transfer) run(ctx context.Context, name string) error {
	if err := t.send(request(name, t.asked)); err != nil {
		return err
	}
	in := make([]byte, maxPacket)
	for {
		b, err := t.receive(ctx, in)
		if err != nil {
			return err
		}
		done, err := t.handle(b)
		if done || err != nil {
			return err
		}
	}
}

// receive returns the next packet of the transfer. It sends the last packet again when none comes.
func (t *transfer) receive(ctx context.Context, in []byte) ([]byte, error) {
	for {
		if t.armed.IsZero() || t.armed.After(t.due) {
			t.armed = t.due
			t.conn.SetReadDeadline(t.due)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		n, from, err := t.conn.ReadFromUDPAddrPort(in)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.armed = time.Time{}
			if time.Now().Before(t.due) {
				continue
			}
			if err := t.timedOut(); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case t.isPeer(from):
			return in[:n], nil
		default: // RFC 1350 section 4: a packet from another port is answered, and ignored
			_, _ = t.conn.WriteToUDPAddrPort(errorPacket(codeUnknownTID, "unknown transfer ID"), from)
		}
	}
}

// isPeer reports whether a packet belongs to the transfer. The first port that the server answers from is the
// transfer's.
func (t *transfer) isPeer(from netip.AddrPort) bool {
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if !t.tid.IsValid() {
		if from.Addr() != t.server.Addr().Unmap() {
			return false
		}
		t.tid = from
	}
	return from == t.tid
}

func (t *transfer) timedOut() error {
	if t.retries++; t.retries > t.limit {
		return fmt.Errorf("no answer to %d packets: %w", t.retries, trivet.ErrUnavailable)
	}
	if t.received > t.acked {
		t.ack()
	}
	return t.send(t.out)
}

// send sends a packet, and keeps it for retransmissions.
func (t *transfer) send(b []byte) error {
	t.out = b
	t.due = time.Now().Add(t.wait << t.retries)
	to := t.tid
	if !to.IsValid() {
		to = t.server
	}
	_, err := t.conn.WriteToUDPAddrPort(b, to)
	return err
}

// ack prepares the ACK of all blocks received.
func (t *transfer) ack() {
	if cap(t.out) < headerSize {
		t.out = make([]byte, headerSize)
	}
	t.out = t.out[:headerSize]
	binary.BigEndian.PutUint16(t.out, opAck)
	binary.BigEndian.PutUint16(t.out[2:], uint16(t.received))
	t.acked = t.received
}

// handle handles one packet.
func (t *transfer) handle(b []byte) (done bool, err error) {
	switch operation(b) {
	case opError:
		return true, parseError(b)
	case opOACK:
		return false, t.handleOACK(parseOACK(b[2:]))
	case opData:
		return t.handleData(b)
	}
	return false, nil
}

func (t *transfer) handleOACK(o Options) error {
	if t.received > 0 {
		return nil // a late copy
	}
	if o.BlockSize > t.asked.BlockSize || o.Window > t.asked.Window {
		_ = t.send(errorPacket(codeOption, "more than requested"))
		return fmt.Errorf("server wants blksize %d, windowsize %d: %w", o.BlockSize, o.Window, trivet.ErrInvalid)
	}
	t.agreed, t.retries = o, 0
	t.ack()
	return t.send(t.out)
}

func (t *transfer) handleData(b []byte) (done bool, err error) {
	if len(b) < headerSize || len(b)-headerSize > t.agreed.block() {
		return false, nil
	}
	if block := binary.BigEndian.Uint16(b[2:]); block != uint16(t.received+1) {
		return false, t.unexpected(block)
	}
	n, err := t.w.Write(b[headerSize:])
	t.written += int64(n)
	if err != nil {
		_ = t.send(errorPacket(codeUndefined, "cannot write"))
		return true, err
	}
	t.received, t.retries, t.gap = t.received+1, 0, false
	done = len(b)-headerSize < t.agreed.block()
	if done || t.received-t.acked >= int64(t.agreed.window()) {
		t.ack()
		return done, t.send(t.out)
	}
	t.due = time.Now().Add(t.wait)
	return false, nil
}

// unexpected answers a block out of order: a later one means a gap in a window; an earlier one, that the ACK may be
// lost, unless the window is not complete yet. Only the first such block of a window is answered.
func (t *transfer) unexpected(block uint16) error {
	ahead := int16(block-uint16(t.received)) > 0
	if !ahead && t.received > t.acked || t.gap && t.agreed.window() > 1 {
		return nil
	}
	t.gap = true
	t.ack()
	return t.send(t.out)
}
