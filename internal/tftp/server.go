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
)

var errStopped = errors.New("server is stopping")

// File is what a transfer reads, from one goroutine. *os.File is one; [Bytes] makes one from memory.
type File interface {
	io.ReaderAt
	io.Closer
}

// Server answers read requests. Open must be set before Serve; the rest has defaults. Several Serve calls may share one.
type Server struct {
	// Open finds the file, and its size in bytes, for a peer. The name is as it came, hostile, without NUL and at most
	// 255 bytes: Open decides what it means. Errors that are not-found or forbidden (trivet's or io/fs's) are told to
	// the peer as such; of others it learns nothing.
	Open func(ctx context.Context, name string, peer netip.AddrPort) (file File, size int64, err error)

	// Done, if set, is called at the end of each transfer, from the transfer's goroutine.
	Done func(Result)

	Logger  *slog.Logger // nothing is logged if nil
	Metrics *Metrics     // nothing is counted if nil

	MaxTransfers int           // at once; 0 means 1024. A request over it is dropped: the peer asks again.
	MaxPerHost   int           // at once to one address; 0 means 16
	Timeout      time.Duration // before a first retransmission, unless the peer asked otherwise; 0 means 1 s
	Retries      int           // retransmissions of one window before giving up; 0 means 5
}

// Result tells how a transfer ended.
type Result struct {
	Peer    netip.AddrPort
	Name    string
	Options Options // what was agreed
	Size    int64   // of the file in bytes; -1 if it was not opened
	Acked   int64   // bytes that the peer has acknowledged
	Resent  int     // packets sent again
	Took    time.Duration
	// Err is nil if the peer acknowledged the last block, or closed its port when that was sent. If the peer ended the
	// transfer it is a *PeerError: firmware does so after it learned the size.
	Err error
}

// Bytes is a File in memory.
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

// Serve answers requests on conn until ctx ends or conn fails; it closes conn. When it returns, all its transfers have
// ended: those running were told so by an ERROR packet. It returns nil if ctx ended.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn) error {
	defer conn.Close()
	if err := askDestination(conn); err != nil {
		return fmt.Errorf("tftp: serve %s: %w", conn.LocalAddr(), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var transfers sync.WaitGroup
	defer transfers.Wait()
	defer cancel()

	admitted := newAdmission(orDefault(s.MaxTransfers, 1024), orDefault(s.MaxPerHost, 16))
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
		s.receive(ctx, in[:n], local, peer, admitted, &transfers)
	}
}

// receive starts the transfer that a packet asks for, or refuses or drops it.
func (s *Server) receive(ctx context.Context, b []byte, local netip.Addr, peer netip.AddrPort,
	admitted *admission, transfers *sync.WaitGroup) {
	if op := operation(b); op != opRead && op != opWrite {
		s.Metrics.drop("not a request") // an ERROR is never answered, nor what may have strayed here
		return
	}
	leave, reason := admitted.enter(peer)
	if leave == nil {
		s.Metrics.drop(reason)
		return
	}
	r, err := parseRequest(b)
	transfers.Go(func() {
		defer leave()
		s.answer(ctx, r, err, local, peer)
	})
}

// answer owns one request to its end. bad is what was wrong with the request.
func (s *Server) answer(ctx context.Context, r request, bad error, local netip.Addr, peer netip.AddrPort) {
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
		s.send(ctx, conn, r, &result)
	}
	result.Took = time.Since(start)
	s.Metrics.end(result)
	s.report(result)
}

// send opens the file and transfers it, filling in the result.
func (s *Server) send(ctx context.Context, conn *net.UDPConn, r request, result *Result) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxDuration, errors.New("transfer took too long"))
	defer cancel()
	file, size, err := s.Open(ctx, r.name, result.Peer)
	if err != nil {
		code, message := failure(err)
		_, _ = conn.Write(appendError(nil, code, message)) // if it is lost, the peer's timeout tells it as well
		result.Err = err
		return
	}
	defer file.Close()
	result.Size, result.Options = size, r.options.agree(size, blockForMTU(conn))
	t := newTransfer(conn, file, result, orDefault(s.Timeout, time.Second), orDefault(s.Retries, 5))
	defer t.free()
	result.Err = t.run(ctx)
}

func refuse(conn *net.UDPConn, code Code, why error) error {
	_, _ = conn.Write(appendError(nil, code, why.Error()))
	return why
}

func (s *Server) report(r Result) {
	if s.Logger != nil {
		s.Logger.Debug("tftp transfer ended", "peer", r.Peer, "name", r.Name, "size", r.Size, "acked", r.Acked,
			"resent", r.Resent, "block", r.Options.block(), "window", r.Options.window(), "took", r.Took, "error", r.Err)
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
