package api_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// frame is one server-sent event of a watch.
type frame struct {
	Event string
	ID    int64
}

// frameReader reads the events that the API writes.
type frameReader struct{ lines *bufio.Reader }

func newFrameReader(r io.Reader) *frameReader { return &frameReader{bufio.NewReader(r)} }

// Next returns the next event, or io.EOF at the end of the stream.
func (r *frameReader) Next() (f frame, err error) {
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return f, err
		}
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			return f, nil
		}
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "event":
			f.Event = value
		case "id":
			fmt.Sscan(value, &f.ID)
		}
	}
}
