// Package tftp is a small read-only TFTP server and client: RFC 1350 in octet mode with the options blksize (RFC 2348),
// timeout and tsize (RFC 2349) and windowsize (RFC 7440).
//
// A request is parsed (packet.go, options.go), admitted or dropped (server.go, admit.go) and then owned by one
// goroutine with its own connected socket (transfer.go), which reads the file and sends whole windows (window.go).
// [Get] is the other side.
package tftp

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/trivet-project/trivet"
)

// Operations, RFC 1350 section 5; opOACK from RFC 2347.
const (
	opRead  = 1
	opWrite = 2
	opData  = 3
	opAck   = 4
	opError = 5
	opOACK  = 6
)

// Code is the reason in an ERROR packet, RFC 1350 appendix and RFC 2347.
type Code uint16

// The codes that this package sends or tells apart.
const (
	CodeUndefined  Code = 0 // see the message
	CodeNotFound   Code = 1
	CodeAccess     Code = 2
	CodeIllegal    Code = 4
	CodeUnknownTID Code = 5
	CodeOption     Code = 8 // the options are refused; how firmware ends a transfer that it began only to learn the size
)

// PeerError is an ERROR packet that the other side sent.
type PeerError struct {
	Code    Code
	Message string
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("peer ended it: %s (code %d)", e.Message, e.Code)
}

// Is lets callers ask for the root package's kinds.
func (e *PeerError) Is(target error) bool {
	switch e.Code {
	case CodeNotFound:
		return target == trivet.ErrNotFound
	case CodeAccess:
		return target == trivet.ErrForbidden
	case CodeUndefined, CodeIllegal, CodeUnknownTID, CodeOption:
	}
	return false
}

// Bounds of what is accepted from the network.
const (
	maxName      = 255   // bytes of a file's name
	maxRequest   = 1024  // bytes of a request; RFC 2347 says 512
	maxOptions   = 16    // options in one request
	minBlock     = 8     // RFC 2348
	maxBlock     = 65464 // RFC 2348
	defaultBlock = 512   // RFC 1350
	headerSize   = 4     // operation and block number before the data
	maxMessage   = 255   // bytes kept of an error message
)

// Bounds of one transfer. A whole window must fit the receiver's socket buffer, which by Linux' default takes some
// 128 KiB; what is over it is lost, costs the receiver a timeout per window, and looks like a stalled transfer.
const (
	maxWindow      = 64
	maxWindowBytes = 128 << 10
	maxDuration    = time.Hour
)

// failure gives the code and message that tell a peer of err. Only errors that are the peer's business are spelled out.
func failure(err error) (Code, string) {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, trivet.ErrNotFound):
		return CodeNotFound, "file not found"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, trivet.ErrForbidden):
		return CodeAccess, "access refused"
	case errors.Is(err, errStopped):
		return CodeUndefined, "server is stopping"
	default:
		return CodeUndefined, "server error"
	}
}
