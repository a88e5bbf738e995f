package bmc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/trivet-project/trivet"
)

// Commands of sessions and payloads (§18.1, §20.1, §24).
const (
	cmdGetSession        = 0x3d
	cmdActivatePayload   = 0x48
	cmdDeactivatePayload = 0x49
	cmdPayloadInstance   = 0x4b
)

// Completion codes of Activate Payload (§24.1).
const (
	codeActive       = 0x80
	codeDisabled     = 0x81
	codeLimit        = 0x82
	codeNoEncryption = 0x83
)

// solPayload is the payload of SOL commands: its type, the first instance, and data.
func solPayload(data ...byte) []byte {
	b := make([]byte, 6)
	b[0], b[1] = payloadSOL, 1
	copy(b[2:], data)
	return b
}

// solInstance names the payload in queries.
var solInstance = []byte{payloadSOL, 1}

// activate starts the console in the session, and returns how many characters the BMC accepts in a packet, and the
// session that it reports as the console's.
func (b *ipmiBMC) activate(ctx context.Context, take bool) (size int, owner uint32, err error) {
	err = b.do(ctx, opOpenConsole, func(ctx context.Context, s *rmcpSession) error {
		data, err := activateSOL(ctx, s)
		if code := codeOf(err); code == codeActive && take {
			if _, err := s.call(ctx, netApp, cmdDeactivatePayload, solPayload()...); err != nil && codeOf(err) == 0 {
				return unsent(err, trivet.ErrUnknown)
			}
			data, err = activateSOL(ctx, s)
		} else if code == codeActive {
			return fail(opOpenConsole, b.cfg, "end that session, or take the console with --take",
				fmt.Errorf("%w%s", ErrConsoleInUse, holder(ctx, s)))
		}
		if err != nil {
			return unsent(explain(opOpenConsole, b.cfg, err), trivet.ErrUnavailable)
		}
		size = packetSize(data)
		if owner, err = consoleOwner(ctx, s); errors.Is(err, errNoAnswer) {
			return unsent(err, trivet.ErrUnavailable)
		}
		return nil
	})
	return size, owner, err
}

// activateSOL sends Activate Payload (§24.1): encrypted and authenticated, alerts of the BMC on the same line deferred,
// and the machine may send at once.
//
// The UDP port that the BMC responds with is not used: it is the session's, in either byte order, or wrong behind a
// gateway.
func activateSOL(ctx context.Context, s *rmcpSession) ([]byte, error) {
	return s.call(ctx, netApp, cmdActivatePayload, solPayload(0x80|0x40|0x04)...)
}

// codeOf returns the completion code of an error; 0: it has none.
func codeOf(err error) byte {
	var c *completionError
	if errors.As(err, &c) {
		return c.code
	}
	return 0
}

// explain says what the BMC's refusal means.
func explain(op string, cfg Config, err error) error {
	hint := ""
	switch codeOf(err) {
	case codeActive, codeLimit:
		err, hint = fmt.Errorf("%w: %w", ErrConsoleInUse, err), "end the other session, or take the console with --take"
	case codeDisabled:
		err = fmt.Errorf("%w: serial over LAN is disabled: %w", ErrNoConsole, err)
		hint = "enable serial over LAN in the BMC, and for its user"
	case codeUnknown, codeNoEncryption:
		err = fmt.Errorf("%w: no encrypted serial over LAN: %w", ErrNoConsole, err)
	case codePrivilege:
		hint = "set the privilege of serial over LAN in the BMC to operator or user"
	default:
		return err
	}
	return fail(op, cfg, hint, err)
}

// packetSize returns how many characters the BMC accepts in a packet, by its response to Activate Payload. Some BMCs
// respond with a wrong size.
func packetSize(response []byte) int {
	const least, most = 8, solMaxText
	if len(response) < 6 {
		return least
	}
	return min(max(least, int(binary.LittleEndian.Uint16(response[4:]))-solHeader), most)
}

// holder says who has the console, as far as the BMC reports it (§24.4, §22.20); empty: it does not.
func holder(ctx context.Context, s *rmcpSession) string {
	owner, err := consoleOwner(ctx, s)
	if err != nil || owner == 0 {
		return ""
	}
	info, err := s.call(ctx, netApp, cmdGetSession, append([]byte{0xff}, le32(owner)...)...)
	if err != nil || len(info) < 10 {
		return ""
	}
	return fmt.Sprintf(": user %d of the BMC has it, from %s", info[3]&0x3f, netip.AddrFrom4([4]byte(info[6:10])))
}

// consoleOwner returns the session that has the console; 0: none, or the BMC does not report it.
func consoleOwner(ctx context.Context, s *rmcpSession) (uint32, error) {
	data, err := s.call(ctx, netApp, cmdPayloadInstance, solInstance...)
	if err != nil || len(data) < 4 {
		return 0, err
	}
	return binary.LittleEndian.Uint32(data), nil
}
