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
	name    string // as received: 1 to maxName bytes other than NUL
	options Options
}

// parseRequest parses an RRQ or WRQ. Its errors are trivet.ErrInvalid, and are sent to the peer.
func parseRequest(b []byte) (request, error) {
	var r request
	switch op := operation(b); op {
	case opRead, opWrite:
		r.write = op == opWrite
	default:
		return r, fmt.Errorf("operation %d is not a request: %w", op, trivet.ErrInvalid)
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

// operation returns the operation of a packet; 0 if it is too short.
func operation(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

// blockNumber returns the block number of a DATA or ACK packet.
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

// parseError parses an ERROR packet; a short one ends the transfer as well.
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

// cutString returns the NUL-terminated string at the beginning of b, and the rest.
func cutString(b []byte) (s string, rest []byte, ok bool) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return "", b, false
	}
	return string(b[:i]), b[i+1:], true
}
