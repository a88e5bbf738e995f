// Package tftp is a small read-only TFTP server: RFC 1350 in octet mode with the options blksize (RFC 2348),
// timeout and tsize (RFC 2349) and windowsize (RFC 7440).
//
// A request is parsed (packet.go, options.go), admitted or dropped (server.go, admit.go) and then owned by one
// goroutine with its own connected socket (transfer.go), which reads the file and sends whole windows (window.go).
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

// The codes that this package sends or distinguishes.
const (
	CodeUndefined  Code = 0 // see the message
	CodeNotFound   Code = 1
	CodeAccess     Code = 2
	CodeIllegal    Code = 4
	CodeUnknownTID Code = 5
	// the options are refused; firmware sends it to end a transfer that it started for the size only
	CodeOption Code = 8
)

// PeerError is an ERROR packet of the peer.
type PeerError struct {
	Code    Code
	Message string
}

func (e *PeerError) Error() string {
	return fmt.Sprintf("peer ended the transfer: %s (code %d)", e.Message, e.Code)
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

// Bounds of one transfer. A whole window must fit the receiver's socket buffer, which holds some 128 KiB by Linux'
// default; packets that exceed it are lost, which costs a timeout per window and looks like a stalled transfer.
const (
	maxWindow      = 64
	maxWindowBytes = 128 << 10
	maxDuration    = time.Hour
)

// failure returns the code and message of err for a peer. Only errors that concern the peer are named.
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
