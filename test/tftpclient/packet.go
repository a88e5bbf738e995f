package tftpclient

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Operations, RFC 1350 section 5; opOACK from RFC 2347.
const (
	opRead  = 1
	opData  = 3
	opAck   = 4
	opError = 5
	opOACK  = 6
)

// Codes of ERROR packets that the client sends or compares.
const (
	codeUndefined  = 0
	codeNotFound   = 1
	codeAccess     = 2
	codeUnknownTID = 5
	codeOption     = 8
)

const (
	headerSize   = 4     // operation and block number
	defaultBlock = 512   // RFC 1350
	maxPacket    = 65468 // RFC 2348, with the header
)

// Options are what the client requests. The zero value is plain RFC 1350.
type Options struct {
	BlockSize int           // bytes of data in a packet (RFC 2348); 0 is not requested, which means 512
	Window    int           // packets of a window (RFC 7440); 0 is not requested
	Timeout   time.Duration // of the server, whole seconds (RFC 2349); 0 is not requested
	WantSize  bool          // ask for the file's size (RFC 2349)
	Size      int64         // not sent
}

func (o Options) block() int {
	if o.BlockSize == 0 {
		return defaultBlock
	}
	return o.BlockSize
}

func (o Options) window() int { return max(o.Window, 1) }

// request returns a read request.
func request(name string, o Options) []byte {
	b := append([]byte{0, opRead}, name...)
	b = append(b, "\x00octet\x00"...)
	pair := func(name string, n int) {
		b = append(append(b, name...), 0)
		b = append(strconv.AppendInt(b, int64(n), 10), 0)
	}
	if o.BlockSize != 0 {
		pair("blksize", o.BlockSize)
	}
	if o.Window != 0 {
		pair("windowsize", o.Window)
	}
	if o.Timeout != 0 {
		pair("timeout", int(o.Timeout/time.Second))
	}
	if o.WantSize {
		pair("tsize", 0)
	}
	return b
}

// parseOACK returns the options that a server agreed to. Values that are not numbers are ignored.
func parseOACK(b []byte) Options {
	var o Options
	words := strings.Split(string(b), "\x00")
	for i := 0; i+1 < len(words); i += 2 {
		n, err := strconv.Atoi(words[i+1])
		if err != nil || n < 0 {
			continue
		}
		switch strings.ToLower(words[i]) {
		case "blksize":
			o.BlockSize = n
		case "windowsize":
			o.Window = n
		}
	}
	return o
}

func operation(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func errorPacket(code uint16, message string) []byte {
	b := binary.BigEndian.AppendUint16([]byte{0, opError}, code)
	return append(append(b, message...), 0)
}

// Error is an ERROR packet of the server.
type Error struct {
	Code    uint16
	Message string
}

func parseError(b []byte) *Error {
	e := &Error{Message: "no message"}
	if len(b) < headerSize {
		return e
	}
	e.Code = binary.BigEndian.Uint16(b[2:])
	if text, _, _ := bytes.Cut(b[headerSize:], []byte{0}); len(text) > 0 {
		e.Message = strings.ToValidUTF8(string(text), "?")
	}
	return e
}

func (e *Error) Error() string { return fmt.Sprintf("server error: %s (code %d)", e.Message, e.Code) }

// Is maps the code to the errors of the root package.
func (e *Error) Is(target error) bool {
	return e.Code == codeNotFound && target == trivet.ErrNotFound ||
		e.Code == codeAccess && target == trivet.ErrForbidden
}
