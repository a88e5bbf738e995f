package bmc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
)

// rmcpAttempts is how often a command is sent that is not answered.
const rmcpAttempts = 4

// rmcpTimeout is how long the BMC may take to answer before the command is sent again. Tests lengthen it.
var rmcpTimeout = time.Second

// errNoAnswer: no valid packet was received in time.
var errNoAnswer = errors.New("no answer")

// rmcpSession is a session of RMCP+ with one BMC. It has no goroutines and is not safe for concurrent use.
//
// This is an implementation of our own (decision 0004): a packet that the BMC did not authenticate must not decide
// whether a machine is off, nor crash the head.
type rmcpSession struct {
	conn     net.Conn
	keys     *sessionKeys // nil until the login is done
	console  uint32       // the client's session ID
	bmc      uint32       // the BMC's
	sequence uint32       // of the last packet sent
	received uint32       // sequence of the last packet accepted
	request  byte         // sequence of the last request, 6 bits
}

// dialRMCP logs in.
func dialRMCP(ctx context.Context, address netip.AddrPort, user, password string) (*rmcpSession, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(address))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	s := &rmcpSession{conn: conn}
	if err := s.login(ctx, user, password); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// handshake sends one step of a login and waits for an answer that take accepts. An answer for which take returns
// errPacket is ignored; any other error ends the step.
func (s *rmcpSession) handshake(ctx context.Context, kind, want byte, payload []byte, take func([]byte) error) error {
	sent := (*sessionKeys)(nil).seal(packet{kind: kind, payload: payload})
	return s.exchange(ctx, func() []byte { return sent }, func(b []byte) error {
		p, err := (*sessionKeys)(nil).open(b)
		if err != nil || p.kind != want || len(p.payload) == 0 || p.payload[0] != payload[0] {
			return errPacket
		}
		return take(p.payload)
	})
}

// call sends one command and returns the data of its response after the completion code, which must be 0.
func (s *rmcpSession) call(ctx context.Context, netFn, command byte, data ...byte) ([]byte, error) {
	s.request = (s.request + 1) & 0x3f
	request := message{netFn: netFn, sequence: s.request, command: command, data: data}
	var response message
	err := s.exchange(ctx, func() []byte {
		s.sequence++
		return s.keys.seal(packet{kind: payloadIPMI, session: s.bmc, sequence: s.sequence, payload: request.request()})
	}, func(b []byte) (err error) {
		p, err := s.keys.open(b)
		if err != nil || p.kind != payloadIPMI || p.session != s.console || p.sequence <= s.received {
			return errPacket
		}
		s.received = p.sequence
		response, err = parseResponse(p.payload)
		if err != nil || response.netFn != netFn || response.command != command || response.sequence != s.request {
			return errPacket
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if code := response.data[0]; code != 0 {
		return nil, &completionError{netFn: netFn, command: command, code: code}
	}
	return response.data[1:], nil
}

// exchange sends and waits until take accepts a packet, with retransmissions. It sends nothing after ctx has ended.
func (s *rmcpSession) exchange(ctx context.Context, send func() []byte, take func([]byte) error) error {
	stop := context.AfterFunc(ctx, func() { s.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var last error
	for range rmcpAttempts {
		s.conn.SetReadDeadline(time.Now().Add(rmcpTimeout))
		if ended(ctx) != nil { // checked after the deadline was set, which AfterFunc sets too
			break
		}
		if _, last = s.conn.Write(send()); last != nil {
			continue
		}
		err := s.receive(take)
		var timeout net.Error
		switch {
		case err == nil:
			return nil
		case errors.As(err, &timeout):
			last = err
		default:
			return err
		}
	}
	return fmt.Errorf("%w: %w", errNoAnswer, errors.Join(ended(ctx), last))
}

// receive calls take with each packet, until it accepts one or fails with another error than errPacket, or the
// deadline.
func (s *rmcpSession) receive(take func([]byte) error) error {
	buf := make([]byte, 4096)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			return err
		}
		if err := take(buf[:n]); !errors.Is(err, errPacket) {
			return err
		}
	}
}

// completionError is a command that the BMC refused (§5.2).
type completionError struct{ netFn, command, code byte }

// Completion codes.
const (
	codeBusy          = 0xc0
	codeState         = 0xd5
	codeUnknown       = 0xc1
	codePrivilege     = 0xd4
	codeUnspecified   = 0xff
	codeCannotRespond = 0xce
	codeInitializing  = 0xd2
)

var codeNames = map[byte]string{
	codeBusy: "busy", codeUnknown: "unknown command", codePrivilege: "insufficient privilege",
	codeState: "not possible in this state", codeUnspecified: "unspecified error",
	codeCannotRespond: "cannot respond now", codeInitializing: "being initialized",
}

func (e *completionError) Error() string {
	return fmt.Sprintf("the BMC answered code %#02x to command %#02x/%#02x: %s", e.code, e.netFn, e.command,
		cmp.Or(codeNames[e.code], "refused"))
}

// Is maps the code to the errors of the root package.
func (e *completionError) Is(target error) bool {
	switch e.code {
	case codePrivilege:
		return target == trivet.ErrForbidden
	case codeBusy, codeCannotRespond, codeInitializing:
		return target == trivet.ErrUnavailable
	case codeUnspecified:
		return target == trivet.ErrUnknown
	}
	return target == trivet.ErrInvalid
}
