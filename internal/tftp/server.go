package tftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

var errStopped = errors.New("server is stopping")

// File is read by one goroutine. *os.File is a File; [Bytes] returns one in memory.
type File interface {
	io.ReaderAt
	io.Closer
}

// Server answers read requests. Open must be set; the rest has defaults. Serve may be called several times.
type Server struct {
	// Open opens a file, and returns its size in bytes. The name is as received, possibly hostile, without NUL and
	// at most 255 bytes: Open decides what it means. Errors that are not-found or forbidden (trivet's or io/fs's)
	// are sent to the peer as such; others are not named.
	Open func(ctx context.Context, name string, peer netip.AddrPort) (file File, size int64, err error)

	// Done, if set, is called at the end of each transfer, from the transfer's goroutine.
	Done func(Result)

	Logger  *slog.Logger // nothing is logged if nil
	Metrics *Metrics     // not registered if nil

	// Limits bound the concurrent transfers; nil: those of an ordinary server. A request above them is dropped: the
	// peer retransmits.
	Limits  *limit.Set
	Timeout time.Duration // before a first retransmission, unless the peer asked for another; 0 means 1 s
	Retries int           // retransmissions of one window before giving up; 0 means 5
}

// Result is how a transfer ended.
type Result struct {
	Peer    netip.AddrPort
	Name    string
	Options Options // as agreed
	Size    int64   // of the file in bytes; -1 if it was not opened
	Acked   int64   // bytes that the peer has acknowledged
	Resent  int     // packets sent again
	Elapsed time.Duration
	// Err is nil if the peer acknowledged the last block, or closed its port when that was sent. It is a *PeerError
	// if the peer ended the transfer: firmware does so after it received the size.
	Err error
}

// Bytes returns a File in memory.
func Bytes(b []byte) File { return memory(b) }

type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off >= int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (memory) Close() error { return nil }

// Serve answers requests on conn until ctx ends or conn fails; it closes conn. When it returns, all its transfers
// have ended: those running sent an ERROR packet. It returns nil if ctx ended.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	defer conn.Close()
	if err := receiveDestination(conn); err != nil {
		return fmt.Errorf("tftp: serve %s: %w", conn.LocalAddr(), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var transfers sync.WaitGroup
	defer transfers.Wait()
	defer cancel()

	running := newAdmission(s.Limits)
	in, control := make([]byte, maxRequest), make([]byte, 128)
	for {
		n, oobn, _, peer, err := conn.ReadMsgUDPAddrPort(in, control)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("tftp: serve %s: %w", conn.LocalAddr(), err)
		}
		local, ok := destination(control[:oobn])
		if !ok {
			s.Metrics.drop("broadcast") // RFC 1123 section 4.2.3.5
			continue
		}
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		s.receive(ctx, in[:n], local, peer, running, &transfers)
	}
}

// receive starts the transfer that a packet requests, or refuses or drops it.
func (s *Server) receive(ctx context.Context, b []byte, local netip.Addr, peer netip.AddrPort,
	running *admission, transfers *sync.WaitGroup) {
	if op := operation(b); op != opRead && op != opWrite {
		s.Metrics.drop("not_a_request") // ERROR and stray packets are never answered
		return
	}
	admitted, reason := running.enter(ctx, peer)
	if admitted == nil {
		s.Metrics.drop(reason)
		return
	}
	r, err := parseRequest(b)
	transfers.Go(func() {
		defer admitted.leave()
		s.answer(admitted, r, err, local, peer)
	})
}

// answer handles one request to its end. bad is the error of a request that is not valid.
func (s *Server) answer(a *admitted, r request, bad error, local netip.Addr, peer netip.AddrPort) {
	result := Result{Peer: peer, Name: r.name, Size: -1}
	start := time.Now()
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)),
		net.UDPAddrFromAddrPort(peer))
	if err != nil {
		result.Err = err
		s.report(result)
		return
	}
	defer conn.Close()

	s.Metrics.begin()
	switch {
	case bad != nil:
		result.Err = refuse(conn, CodeIllegal, bad)
	case r.write:
		result.Err = refuse(conn, CodeAccess, fmt.Errorf("this server is read-only: %w", trivet.ErrForbidden))
	default:
		s.send(a, conn, r, &result)
	}
	result.Elapsed = time.Since(start)
	s.Metrics.end(result)
	s.report(result)
}

// send opens the file and transfers it, filling in the result.
func (s *Server) send(a *admitted, conn *net.UDPConn, r request, result *Result) {
	ctx, cancel := context.WithTimeoutCause(a.ctx, maxDuration, errors.New("transfer took too long"))
	defer cancel()
	file, size, err := s.Open(ctx, r.name, result.Peer)
	if err != nil {
		code, message := failure(err)
		_, _ = conn.Write(appendError(nil, code, message)) // if it is lost, the peer times out
		result.Err = err
		return
	}
	defer file.Close()
	result.Size, result.Options = size, r.options.agree(size, blockForMTU(conn))
	t := newTransfer(conn, file, result, orDefault(s.Timeout, time.Second), orDefault(s.Retries, 5))
	defer t.free()
	t.answered = a.entry.Recognise
	result.Err = t.run(ctx)
}

func refuse(conn *net.UDPConn, code Code, reason error) error {
	_, _ = conn.Write(appendError(nil, code, reason.Error()))
	return reason
}

func (s *Server) report(r Result) {
	if s.Logger != nil {
		s.Logger.Debug("transfer ended", "peer", r.Peer, "name", r.Name, "size", r.Size, "acked", r.Acked,
			"resent", r.Resent, "block", r.Options.block(), "window", r.Options.window(), "elapsed", r.Elapsed,
			"error", r.Err)
	}
	if s.Done != nil {
		s.Done(r)
	}
}

func orDefault[T ~int | ~int64](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
}
