package apitypes

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

func TestFramesCross(t *testing.T) {
	want := []Frame{
		{Event: EventPut, ID: 7, Data: []byte(`{"name":"m1"}`)},
		{Event: EventBookmark, ID: 9, Data: []byte(`{}`)},
		{Event: EventError, Data: []byte(strings.Repeat("x", MaxFrame-100))},
	}
	var text []byte
	for _, f := range want {
		text = AppendFrame(text, f)
	}
	r := NewFrameReader(inPieces{bytes.NewReader(text)})
	for i := range want {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// inPieces gives less than was asked for, so that frames are cut everywhere.
type inPieces struct{ r io.Reader }

func (o inPieces) Read(b []byte) (int, error) { return o.r.Read(b[:min(len(b), 4093)]) }

func TestFrameReaderRefuses(t *testing.T) {
	for text, want := range map[string]error{
		"data: {}\n":                             io.ErrUnexpectedEOF,
		"data: {":                                io.ErrUnexpectedEOF,
		"id: -1\n\n":                             trivet.ErrInvalid,
		"id: x\n\n":                              trivet.ErrInvalid,
		"data: " + strings.Repeat("x", MaxFrame): trivet.ErrTooLarge,
		strings.Repeat("data: x\n", MaxFrame/4):  trivet.ErrTooLarge,
		": comment\n\n":                          io.EOF,
		"":                                       io.EOF,
	} {
		if _, err := NewFrameReader(strings.NewReader(text)).Next(); !errors.Is(err, want) {
			t.Errorf("%.40q: %v; want %v", text, err, want)
		}
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte("event: put\nid: 3\ndata: {}\n\n: x\n\ndata\r\n\r\nevent:delete\ndata:\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := NewFrameReader(bytes.NewReader(text))
		for range len(text) + 1 {
			frame, err := r.Next()
			if err != nil {
				return
			}
			if frame.Data == nil || frame.ID < 0 {
				t.Fatalf("%+v", frame)
			}
		}
		t.Fatal("more frames than bytes")
	})
}
