package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/wait"
)

// source is content to import: a file or a URL.
type source interface {
	io.ReadSeeker
	io.ReaderAt
	io.Closer
}

// openSource opens a file or a URL and returns its size, or 0 if it is unknown.
func openSource(ctx context.Context, name string) (s source, size int64, err error) {
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return openURL(ctx, name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: %w: not a regular file", name, trivet.ErrInvalid)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// urlSource reads a URL with range requests, so that it can resume. The content must not change meanwhile.
type urlSource struct {
	ctx    context.Context // of the command: the methods of a file accept none
	url    string
	etag   string // strong; empty: none
	size   int64
	ranges bool

	body   io.ReadCloser // open at offset; nil: none
	offset int64
}

func openURL(ctx context.Context, url string) (source, int64, error) {
	s := &urlSource{ctx: ctx, url: url}
	resp, err := s.get(0, -1)
	if err != nil {
		return nil, 0, err
	}
	s.body, s.size = resp.Body, max(resp.ContentLength, 0)
	s.ranges = resp.Header.Get("Accept-Ranges") == "bytes"
	if etag := resp.Header.Get("ETag"); !strings.HasPrefix(etag, "W/") {
		s.etag = etag
	}
	return s, s.size, nil
}

// A request for a URL is sent this often, with this pause before the second attempt; the later ones double.
const (
	downloadAttempts = 5
	downloadPause    = 500 * time.Millisecond
)

// errNoResponse: the name of the server was not found, it was not reached, or it is overloaded.
var errNoResponse = errors.New("no response")

// get requests a range; a negative to means up to the end. It retries where there is no response.
func (s *urlSource) get(from, to int64) (resp *http.Response, err error) {
	noResponse := func(err error) bool { return errors.Is(err, errNoResponse) }
	err = wait.Retry(s.ctx, downloadAttempts, downloadPause, noResponse, func() error {
		resp, err = s.getOnce(from, to)
		return err
	})
	return resp, err
}

func (s *urlSource) getOnce(from, to int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept-Encoding", "identity") // otherwise Range would apply to the compressed content
	want := http.StatusOK
	if from > 0 || to >= 0 {
		want = http.StatusPartialContent
		span := fmt.Sprintf("bytes=%d-", from)
		if to >= 0 {
			span += fmt.Sprint(to)
		}
		req.Header.Set("Range", span)
		if s.etag != "" {
			req.Header.Set("If-Range", s.etag)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %w", trivet.ErrUnavailable, errNoResponse, err)
	}
	if resp.StatusCode == want {
		return resp, nil
	}
	resp.Body.Close()
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		return nil, fmt.Errorf("%s: %w: %w: HTTP status %s", s.url, trivet.ErrUnavailable, errNoResponse, resp.Status)
	}
	err = fmt.Errorf("%s: %w: HTTP status %s", s.url, trivet.ErrUnavailable, resp.Status)
	if want == http.StatusPartialContent && resp.StatusCode == http.StatusOK {
		err = fmt.Errorf(
			"%s: %w: the server does not support ranges, or the content has changed; download it and import the file",
			s.url, trivet.ErrInvalid)
	}
	return nil, err
}

// Read reads from the current position. A broken connection is reopened once after each successful read.
func (s *urlSource) Read(b []byte) (int, error) {
	for try := 0; ; try++ {
		if s.body == nil {
			resp, err := s.get(s.offset, -1)
			if err != nil {
				return 0, err
			}
			s.body = resp.Body
		}
		n, err := s.body.Read(b)
		s.offset += int64(n)
		short := errors.Is(err, io.EOF) && s.size > 0 && s.offset < s.size
		switch {
		case n > 0 && (err == nil || !short && errors.Is(err, io.EOF)):
			return n, err
		case err == nil:
			continue
		case errors.Is(err, io.EOF) && !short:
			return n, err
		case s.ctx.Err() != nil:
			return n, context.Cause(s.ctx)
		case !s.ranges || try > 0 && n == 0:
			return n, fmt.Errorf("%s: interrupted at byte %d: %w", s.url, s.offset, err)
		}
		s.body.Close()
		s.body = nil
		if n > 0 {
			return n, nil
		}
	}
}

// Seek accepts absolute positions only. The connection is opened by the next Read.
func (s *urlSource) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return s.offset, fmt.Errorf("seek in %s: %w", s.url, errors.ErrUnsupported)
	}
	if offset != s.offset {
		s.Close()
		s.body, s.offset = nil, offset
	}
	return offset, nil
}

// ReadAt reads a range with a separate request.
func (s *urlSource) ReadAt(b []byte, offset int64) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if s.size > 0 && offset >= s.size {
		return 0, io.EOF
	}
	resp, err := s.get(offset, offset+int64(len(b))-1)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.ReadFull(resp.Body, b)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = io.EOF
	}
	return n, err
}

// Close closes the connection.
func (s *urlSource) Close() error {
	if s.body == nil {
		return nil
	}
	return s.body.Close()
}
