package tftp

import (
	"strconv"
	"strings"
	"time"
)

// Options are what a client asks for, or what the server agreed to. The zero value is plain RFC 1350.
type Options struct {
	BlockSize int           // bytes of data in a packet, 8 to 65464 (RFC 2348); 0 is not asked for, which means 512
	Window    int           // packets sent before an ACK is awaited, 1 to 65535 (RFC 7440); 0 is not asked for
	Timeout   time.Duration // before a packet is sent again, 1 to 255 whole seconds (RFC 2349); 0 is not asked for
	WantSize  bool          // the file's size is asked for or sent (RFC 2349)
	Size      int64         // with WantSize in an answer: the file's size in bytes
}

func (o Options) asked() bool {
	return o.BlockSize != 0 || o.Window != 0 || o.Timeout != 0 || o.WantSize
}

func (o Options) block() int {
	if o.BlockSize == 0 {
		return defaultBlock
	}
	return o.BlockSize
}

func (o Options) window() int { return max(o.Window, 1) }

// agree returns the options for a file of this size over a path whose packets hold at most mtuBlock bytes of data.
// A larger block would be fragmented, and boot firmware and many switches drop fragments. Options that were not
// asked for are not set (RFC 2347).
func (o Options) agree(size int64, mtuBlock int) Options {
	a := Options{Timeout: o.Timeout, WantSize: o.WantSize}
	if o.WantSize {
		a.Size = size
	}
	if o.BlockSize != 0 {
		a.BlockSize = max(min(o.BlockSize, mtuBlock), minBlock)
	}
	if o.Window != 0 {
		a.Window = max(min(o.Window, maxWindow, maxWindowBytes/a.block()), 1)
	}
	return a
}

// set sets one option as received. Unknown and out of range ones are ignored (RFC 2347), as are repetitions.
func (o *Options) set(name, value string) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return
	}
	switch strings.ToLower(name) {
	case "blksize":
		if o.BlockSize == 0 && minBlock <= n {
			o.BlockSize = int(min(n, maxBlock))
		}
	case "windowsize":
		if o.Window == 0 && 1 <= n && n <= 65535 {
			o.Window = int(n)
		}
	case "timeout":
		if o.Timeout == 0 && 1 <= n && n <= 255 {
			o.Timeout = time.Duration(n) * time.Second
		}
	case "tsize":
		if !o.WantSize {
			o.WantSize, o.Size = true, n
		}
	}
}

// append appends the options as the NUL-terminated pairs of RFC 2347.
func (o Options) append(b []byte) []byte {
	pair := func(name string, n int64) {
		b = append(append(b, name...), 0)
		b = append(strconv.AppendInt(b, n, 10), 0)
	}
	if o.BlockSize != 0 {
		pair("blksize", int64(o.BlockSize))
	}
	if o.Window != 0 {
		pair("windowsize", int64(o.Window))
	}
	if o.Timeout != 0 {
		pair("timeout", int64(o.Timeout/time.Second))
	}
	if o.WantSize {
		pair("tsize", o.Size)
	}
	return b
}

// parseOptions parses NUL-terminated pairs. What follows the last whole pair is ignored: old firmware sends stray
// bytes.
func parseOptions(b []byte) Options {
	var o Options
	for range maxOptions {
		name, rest, ok := cutString(b)
		if !ok {
			break
		}
		value, rest, ok := cutString(rest)
		if !ok {
			break
		}
		o.set(name, value)
		b = rest
	}
	return o
}
