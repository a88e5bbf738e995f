package tftp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// request is a read or write request.
type request struct {
	write   bool
	name    string // as it came: any bytes but NUL, 1 to maxName of them
	options Options
}

// parseRequest reads an RRQ or WRQ. Its errors are trivet.ErrInvalid and say to the peer what is wrong.
func parseRequest(b []byte) (request, error) {
	var r request
	switch op := operation(b); op {
	case opRead, opWrite:
		r.write = op == opWrite
	default:
		return r, fmt.Errorf("operation %d is no request: %w", op, trivet.ErrInvalid)
	}
	name, rest, ok := cutString(b[2:])
	if !ok || name == "" || len(name) > maxName {
		return r, fmt.Errorf("file name is missing or over %d bytes: %w", maxName, trivet.ErrInvalid)
	}
	mode, rest, ok := cutString(rest)
	if !ok || !strings.EqualFold(mode, "octet") {
		return r, fmt.Errorf("only mode octet (binary) is served: %w", trivet.ErrInvalid)
	}
	r.name, r.options = name, parseOptions(rest)
	return r, nil
}

func (r request) append(b []byte) []byte {
	op := uint16(opRead)
	if r.write {
		op = opWrite
	}
	b = binary.BigEndian.AppendUint16(b, op)
	b = append(append(b, r.name...), 0)
	b = append(b, "octet\x00"...)
	return r.options.append(b)
}

// operation of a packet, 0 if it is too short to have one.
func operation(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// blockNumber of a DATA or ACK packet.
func blockNumber(b []byte) (n uint16, ok bool) {
	if len(b) < headerSize {
		return 0, false
	}
	return binary.BigEndian.Uint16(b[2:]), true
}

// putHeader writes the first four bytes of DATA or ACK.
func putHeader(b []byte, op, block uint16) {
	binary.BigEndian.PutUint16(b, op)
	binary.BigEndian.PutUint16(b[2:], block)
}

func appendOACK(b []byte, o Options) []byte {
	return o.append(binary.BigEndian.AppendUint16(b, opOACK))
}

func appendError(b []byte, code Code, message string) []byte {
	b = binary.BigEndian.AppendUint16(b, opError)
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(append(b, message...), 0)
}

// parseError reads an ERROR packet; a short one is still the peer's will to end.
func parseError(b []byte) *PeerError {
	e := &PeerError{Message: "no message"}
	n, ok := blockNumber(b)
	if !ok {
		return e
	}
	e.Code = Code(n)
	text := b[headerSize:]
	if i := bytes.IndexByte(text, 0); i >= 0 {
		text = text[:i]
	}
	if len(text) > 0 {
		e.Message = strings.ToValidUTF8(string(text[:min(len(text), maxMessage)]), "?")
	}
	return e
}

// cutString takes a NUL-ended string off b.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return "", b, false
	}
	return string(b[:i]), b[i+1:], true
}
