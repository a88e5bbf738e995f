package blob

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
)

// Fetcher gets blobs from heads; the zero value is usable.
type Fetcher struct {
	Client       *http.Client  // nil: one of its own
	StallTimeout time.Duration // a connection that gives less than 64 KiB in this time is given up; 0: 15 s
	Pause        time.Duration // before all heads are asked again; doubles up to 32 times it; 0: 250 ms
	Log          *slog.Logger  // is told why a head was left for the next one; nil: nobody is
}

var ownClient = &http.Client{Transport: &http.Transport{
	DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	IdleConnTimeout:     30 * time.Second,
	TLSHandshakeTimeout: 5 * time.Second,
}}

// Fetch reads a blob from the heads at these base URLs, to which "/blob/<digest>" is added.
//
// What the reader gives is verified: chunk by chunk before it is handed on if ref has Chunks, and the whole at the end,
// where a wrong digest comes in place of io.EOF. A connection that breaks or stalls is replaced by one to the next URL, from
// the last good chunk on, until ctx ends. When every head, asked twice in a row, says that it has no such blob or gives
// what is not in ref, reading ends with [trivet.ErrNotFound] or [trivet.ErrInvalid].
//
// Close may be called at any time and waits for the goroutine that reads ahead.
func (f *Fetcher) Fetch(ctx context.Context, urls []string, ref trivet.BlobRef) (io.ReadCloser, error) {
	s, err := f.source(urls, ref)
	if err != nil {
		return nil, fmt.Errorf("fetch blob: %w", err)
	}
	return newStream(ctx, s), nil
}

// source is where a blob comes from.
func (f *Fetcher) source(urls []string, ref trivet.BlobRef) (*source, error) {
	d, err := ParseDigest(ref.Digest)
	if err != nil {
		return nil, err
	}
	s := &source{client: cmp.Or(f.Client, ownClient), stall: cmp.Or(f.StallTimeout, 15*time.Second),
		pause: cmp.Or(f.Pause, 250*time.Millisecond), urls: urls, digest: d, size: ref.Bytes,
		log: cmp.Or(f.Log, slog.New(slog.DiscardHandler))}
	if ref.Chunks != "" {
		chunks, err := ParseDigest(ref.Chunks)
		if err != nil {
			return nil, fmt.Errorf("%s: chunk table: %w", d, err)
		}
		s.chunks = &chunks
	}
	switch {
	case len(urls) == 0:
		return nil, fmt.Errorf("%s: %w: no head to ask", d, trivet.ErrUnavailable)
	case ref.Bytes < 0 || ref.Bytes > maxFetch:
		return nil, fmt.Errorf("%s: %w: a length of %d", d, trivet.ErrInvalid, ref.Bytes)
	}
	return s, nil
}

// maxFetch bounds a blob's length by what its chunk table takes in memory: 32 MiB.
const maxFetch = 4 << 40
