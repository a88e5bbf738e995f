package tftp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

var errTimeout = errors.New("peer does not answer")

// maxBackoff bounds the wait between retransmissions, which doubles from the first.
const maxBackoff = 8 * time.Second

// transfer sends one file. It is used by one goroutine.
//
// Blocks are counted from 1 and never wrap; block 0 is the OACK. On the wire they are modulo 2^16, so that files
// may have any size. The blocks base..sent are in flight.
type transfer struct {
	conn   *net.UDPConn
	reader reader
	result *Result
	last   int64 // the last block: the first that is not full; it may be empty

	base int64 // lowest block that is not acknowledged
	sent int64 // highest block of the window that was sent last
	top  int64 // highest block ever sent

	first   time.Duration // wait before the first retransmission
	wait    time.Duration // wait before the next one
	retries int
	retried int // retransmissions since the last progress

	due   time.Time // when to send again
	armed time.Time // conn's read deadline; never after due while reading. Setting it for each packet is too expensive.

	answered func() // the peer acknowledged a first packet
	repeat   repeat
	in       [headerSize + maxMessage]byte
}

func newTransfer(conn *net.UDPConn, file File, result *Result, timeout time.Duration, retries int) *transfer {
	o := result.Options
	t := &transfer{
		conn: conn, result: result, first: timeout, retries: retries,
		reader: reader{file: file, size: result.Size, block: int64(o.block()),
			buf: buffers.Get().(*[headerSize + readAhead]byte)},
		last: result.Size/int64(o.block()) + 1,
		top:  -1,
	}
	if o.Timeout != 0 {
		t.first = o.Timeout
	}
	if !o.asked() {
		t.base = 1
	}
	t.wait = t.first
	return t
}

// free returns the buffer to the pool.
func (t *transfer) free() { buffers.Put(t.reader.buf) }

// run sends until the last block is acknowledged. It reports an error to the peer, unless the peer ended the
// transfer.
func (t *transfer) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { t.conn.SetReadDeadline(time.Unix(1, 0)) })()
	for t.base <= t.last {
		err := t.sendWindow()
		if err == nil {
			err = t.await(ctx)
		}
		if errors.Is(err, unix.ECONNREFUSED) && t.sent == t.last {
			return nil // the peer closed its port after the last block; its ACK was lost
		}
		if err != nil {
			var peer *PeerError
			if !errors.As(err, &peer) && !errors.Is(err, errReplaced) { // one that was replaced may ask again
				code, message := failure(err)
				_, _ = t.conn.Write(appendError(nil, code, message))
			}
			return fmt.Errorf("block %d of %d: %w", t.base, t.last, err)
		}
	}
	return nil
}

func (t *transfer) sendWindow() error {
	t.due = time.Now().Add(t.wait)
	t.sent = min(t.base+int64(t.result.Options.window())-1, t.last)
	if t.base == 0 {
		t.sent = 0
		t.count()
		_, err := t.conn.Write(appendOACK(nil, t.result.Options))
		return err
	}
	t.count()
	return t.reader.send(t.conn, t.base, t.sent)
}

// count counts the packets that are sent again.
func (t *transfer) count() {
	t.result.Resent += int(max(min(t.top, t.sent)-t.base+1, 0))
	t.top = max(t.top, t.sent)
}

// await returns nil when a window must be sent: the next one, or this one again.
func (t *transfer) await(ctx context.Context) error {
	for {
		if t.armed.IsZero() || t.armed.After(t.due) {
			t.armed = t.due
			t.conn.SetReadDeadline(t.due)
		}
		if ctx.Err() != nil { // checked after the deadline was set, which may have replaced the one of ctx's end
			return stopCause(ctx)
		}
		n, err := t.conn.Read(t.in[:])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			t.armed = time.Time{}
			if ctx.Err() == nil && time.Now().Before(t.due) {
				continue
			}
			if ctx.Err() != nil {
				return stopCause(ctx)
			}
			return t.timedOut()
		case err != nil:
			return err
		}
		switch operation(t.in[:n]) {
		case opError:
			return parseError(t.in[:n])
		case opAck:
			if block, ok := blockNumber(t.in[:n]); ok && t.acked(block) {
				return nil
			}
		}
	}
}

func stopCause(ctx context.Context) error {
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return errStopped
}

// timedOut makes the window be sent again, up to the retries.
func (t *transfer) timedOut() error {
	if t.retried++; t.retried > t.retries {
		return fmt.Errorf("%w to %d packets", errTimeout, t.retried)
	}
	t.wait = min(t.wait*2, max(maxBackoff, t.first))
	t.repeat.resent()
	return nil
}

// acked handles an ACK and reports whether a window must be sent.
func (t *transfer) acked(wire uint16) bool {
	before := t.base - 1
	block := before + int64(wire-uint16(before)) // the first block at or after before with this number
	switch {
	case block > t.sent:
		return false // an old one
	case block == before:
		// Either an old one, or the window's first block was lost.
		return t.result.Options.window() > 1 && t.repeat.accept()
	}
	if t.result.Acked == 0 && t.answered != nil {
		t.answered()
	}
	if block < t.sent {
		t.repeat.resent() // the peer detected a gap: the rest is sent again (RFC 7440)
	} else {
		t.repeat.acked()
	}
	t.base, t.retried, t.wait = block+1, 0, t.first
	t.result.Acked = min(block*t.reader.block, t.reader.size)
	return true
}

// repeat decides whether a repeated ACK makes a window be sent again. With a window of one block it never does:
// each side would answer each copy by a copy to the end of the transfer, the "sorcerer's apprentice syndrome" of
// RFC 1123 section 4.2.3.1. With longer windows a repeated ACK reports early that a window's first block was lost,
// and peers send one such ACK per packet after the gap. So it is accepted only once, and only for a window that was
// sent once, after one that was sent once.
type repeat int

const (
	once     repeat = iota // sent once, as was the one before
	onceNow                // sent once; the one before more than once
	repeated               // sent more than once
)

func (r *repeat) accept() bool {
	if *r != once {
		return false
	}
	*r = repeated
	return true
}

func (r *repeat) resent() { *r = repeated }

// acked notes that the whole window was acknowledged.
func (r *repeat) acked() {
	if *r == repeated {
		*r = onceNow
	} else {
		*r = once
	}
}
