package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
)

// frame is one server-sent event (WHATWG HTML, §9.2).
type frame struct {
	event string
	id    int64 // the store's revision; 0 when there is none
	data  []byte
}

// frameReader parses server-sent events.
type frameReader struct{ lines *bufio.Reader }

func newFrameReader(r io.Reader) *frameReader { return &frameReader{bufio.NewReaderSize(r, 64<<10)} }

// next returns the next frame that has data. It fails with io.EOF at an end between frames, io.ErrUnexpectedEOF
// within one, and trivet.ErrTooLarge at one over trivet.MaxWatchEvent.
func (r *frameReader) next() (frame, error) {
	var f frame
	size, partial := 0, false
	for {
		line, err := r.line(trivet.MaxWatchEvent - size)
		if err != nil {
			if errors.Is(err, io.EOF) && (partial || len(line) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if f.data != nil {
				return f, nil
			}
			f, size, partial = frame{}, 0, false
			continue
		}
		partial = true
		if err := f.parse(line); err != nil {
			return frame{}, err
		}
	}
}

// line reads one line of at most limit bytes.
func (r *frameReader) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(line)+len(part) > limit+2 {
			return nil, fmt.Errorf("read watch: %w: an event has over %d bytes", trivet.ErrTooLarge,
				trivet.MaxWatchEvent)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(line, "\r\n"), err
	}
}

// parse reads one field. Comments and unknown fields are ignored.
func (f *frame) parse(line []byte) error {
	name, value, _ := strings.Cut(string(line), ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "event":
		f.event = value
	case "data":
		if f.data != nil {
			f.data = append(f.data, '\n')
		}
		f.data = append(f.data, value...)
		if f.data == nil {
			f.data = []byte{}
		}
	case "id":
		id, err := strconv.ParseInt(value, 10, 64)
		if err != nil || id < 0 {
			return fmt.Errorf("read watch: %w: the id %.40q is not a revision", trivet.ErrInvalid, value)
		}
		f.id = id
	}
	return nil
}
