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

// Fetcher fetches blobs from heads. The zero value is usable.
type Fetcher struct {
	Client       *http.Client  // nil: the package's client
	StallTimeout time.Duration // a connection that receives less than 64 KiB in this time is closed; 0: 15 s
	Pause        time.Duration // before all heads are tried again; doubles up to 32 times; 0: 250 ms
	Log          *slog.Logger  // logs why the next head is tried; nil: no log
}

var defaultClient = &http.Client{Transport: &http.Transport{
	DialContext:         (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
	IdleConnTimeout:     30 * time.Second,
	TLSHandshakeTimeout: 5 * time.Second,
}}

// Fetch reads a blob from the heads at these base URLs, to which "/blob/<digest>" is added.
//
// The data is verified: chunk by chunk before it is returned if ref has Chunks, and as a whole at the end, where a
// wrong digest is an error instead of io.EOF. A connection that breaks or stalls is replaced by one to the next URL,
// from the last good chunk, until ctx ends. If every head, tried twice in a row, does not have the blob or sends
// other data than ref describes, reading ends with [trivet.ErrNotFound] or [trivet.ErrInvalid].
//
// Close may be called at any time and waits for the goroutine that reads ahead.
func (f *Fetcher) Fetch(ctx context.Context, urls []string, ref trivet.BlobRef) (io.ReadCloser, error) {
	s, err := f.source(urls, ref)
	if err != nil {
		return nil, fmt.Errorf("fetch blob: %w", err)
	}
	return newStream(ctx, s), nil
}

// source returns the source of a blob.
func (f *Fetcher) source(urls []string, ref trivet.BlobRef) (*source, error) {
	d, err := ParseDigest(ref.Digest)
	if err != nil {
		return nil, err
	}
	s := &source{client: cmp.Or(f.Client, defaultClient), stall: cmp.Or(f.StallTimeout, 15*time.Second),
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
		return nil, fmt.Errorf("%s: %w: no head URLs", d, trivet.ErrUnavailable)
	case ref.Bytes < 0 || ref.Bytes > maxFetch:
		return nil, fmt.Errorf("%s: %w: length %d", d, trivet.ErrInvalid, ref.Bytes)
	}
	return s, nil
}

// maxFetch bounds a blob's length, so that its chunk table has at most 32 MiB.
const maxFetch = 4 << 40
