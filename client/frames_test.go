package client

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

func TestFramesCross(t *testing.T) {
	t.Parallel()
	want := []frame{
		{event: trivet.WatchPut, id: 7, data: []byte(`{"name":"m1"}`)},
		{event: trivet.WatchBookmark, id: 9, data: []byte(`{}`)},
		{event: trivet.WatchError, data: []byte(strings.Repeat("x", trivet.MaxWatchEvent-100))},
	}
	var text []byte
	for _, f := range want {
		text = apitypes.AppendEvent(text, f.event, f.id, f.data)
	}
	r := newFrameReader(inPieces{bytes.NewReader(text)})
	for i := range want {
		got, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want[i], got, cmp.AllowUnexported(frame{})); diff != "" {
			t.Error(diff)
		}
	}
	if _, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

// inPieces returns less than requested, so that frames are cut everywhere.
type inPieces struct{ r io.Reader }

func (o inPieces) Read(b []byte) (int, error) { return o.r.Read(b[:min(len(b), 4093)]) }

func TestFrameReaderRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]error{
		"data: {}\n": io.ErrUnexpectedEOF,
		"data: {":    io.ErrUnexpectedEOF,
		"id: -1\n\n": trivet.ErrInvalid,
		"id: x\n\n":  trivet.ErrInvalid,
		"data: " + strings.Repeat("x", trivet.MaxWatchEvent): trivet.ErrTooLarge,
		strings.Repeat("data: x\n", trivet.MaxWatchEvent/4):  trivet.ErrTooLarge,
		": comment\n\n": io.EOF,
		"":              io.EOF,
	} {
		if _, err := newFrameReader(strings.NewReader(text)).next(); !errors.Is(err, want) {
			t.Errorf("%.40q: %v; want %v", text, err, want)
		}
	}
}

func FuzzFrameReader(f *testing.F) {
	f.Add([]byte("event: put\nid: 3\ndata: {}\n\n: x\n\ndata\r\n\r\nevent:delete\ndata:\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newFrameReader(bytes.NewReader(text))
		for range len(text) + 1 {
			got, err := r.next()
			if err != nil {
				return
			}
			if got.data == nil || got.id < 0 {
				t.Fatalf("%+v", got)
			}
		}
		t.Fatal("more frames than bytes")
	})
}
