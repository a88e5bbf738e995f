package apitypes

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

// Frame is one server-sent event (WHATWG HTML, §9.2). Data holds no line break: it is one JSON value.
type Frame struct {
	Event string
	ID    int64 // the store's revision; 0 when the frame has none
	Data  []byte
}

// MaxFrame bounds one frame in bytes; a record's JSON fits.
const MaxFrame = trivet.MaxRecord + 4<<10

// AppendFrame writes a frame as text. Line breaks in Data are left out: JSON holds none that matter.
func AppendFrame(b []byte, f Frame) []byte {
	b = append(b, "event: "+f.Event+"\n"...)
	if f.ID > 0 {
		b = append(b, "id: "...)
		b = strconv.AppendInt(b, f.ID, 10)
		b = append(b, '\n')
	}
	b = append(b, "data: "...)
	b = append(b, bytes.ReplaceAll(f.Data, []byte("\n"), nil)...)
	return append(b, "\n\n"...)
}

// FrameReader reads frames.
type FrameReader struct{ lines *bufio.Reader }

// NewFrameReader reads from r, which should be cut by its owner when it stays silent for too long.
func NewFrameReader(r io.Reader) *FrameReader { return &FrameReader{bufio.NewReaderSize(r, 64<<10)} }

// Next gives the next frame that has data. It fails with io.EOF at a clean end between frames, io.ErrUnexpectedEOF within
// one, and trivet.ErrTooLarge at one over MaxFrame.
func (r *FrameReader) Next() (Frame, error) {
	var f Frame
	size, began := 0, false
	for {
		line, err := r.line(MaxFrame - size)
		if err != nil {
			if errors.Is(err, io.EOF) && (began || len(line) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return Frame{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if f.Data != nil {
				return f, nil
			}
			f, size, began = Frame{}, 0, false
			continue
		}
		began = true
		if err := f.take(line); err != nil {
			return Frame{}, err
		}
	}
}

// line reads up to a line break, of which it takes all three forms' first.
func (r *FrameReader) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(line)+len(part) > limit+2 {
			return nil, fmt.Errorf("read feed: %w: an event has over %d bytes", trivet.ErrTooLarge, MaxFrame)
		}
		line = append(line, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(line, "\r\n"), err
	}
}

func (f *Frame) take(line []byte) error {
	name, value, _ := strings.Cut(string(line), ":")
	value = strings.TrimPrefix(value, " ")
	switch name {
	case "event":
		f.Event = value
	case "data":
		if f.Data != nil {
			f.Data = append(f.Data, '\n')
		}
		f.Data = append(f.Data, value...)
		if f.Data == nil {
			f.Data = []byte{}
		}
	case "id":
		id, err := strconv.ParseInt(value, 10, 64)
		if err != nil || id < 0 {
			return fmt.Errorf("read feed: %w: the id %.40q is not a revision", trivet.ErrInvalid, value)
		}
		f.ID = id
	}
	return nil // comments and fields that are not known are passed over
}
