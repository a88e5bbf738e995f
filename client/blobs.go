package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
)

// PutOptions describe content before it is sent.
type PutOptions struct {
	Digest string // "sha256:..."; empty: unknown
	Bytes  int64  // 0: unknown
	// Progress, if set, is called with the number of bytes sent.
	Progress func(sent int64)
}

// Bounds of an upload: the longest wait between attempts, how long a head may be unreachable or hold a dead
// connection, how long it may take to sync what it received, and the wait between attempts to abort.
const (
	uploadPause   = 5 * time.Second
	uploadTimeout = 2 * time.Minute
	finishTimeout = 2 * time.Minute
	abortPause    = 50 * time.Millisecond
)

// PutBlob stores content and returns the reference to it. After a broken connection it reconnects and continues at the
// head's offset. It fails when that head is lost, or when the content cannot be read again from that offset.
func (c *Client) PutBlob(ctx context.Context, content io.ReadSeeker, o PutOptions) (trivet.BlobRef, error) {
	u := &uploader{c: c, content: content, options: o}
	ref, err := u.run(ctx)
	if err != nil {
		return ref, fmt.Errorf("upload: %w", err)
	}
	return ref, nil
}

type uploader struct {
	c       *Client
	content io.ReadSeeker
	options PutOptions
	head    string // the head that has the upload
	path    string
}

func (u *uploader) run(ctx context.Context) (ref trivet.BlobRef, err error) {
	existing, err := u.begin(ctx)
	if err != nil || existing != nil {
		if existing != nil {
			ref = *existing
		}
		return ref, err
	}
	if err := u.send(ctx); err != nil {
		u.abort(ctx)
		return ref, err
	}
	return u.finish(ctx)
}

// finish makes the upload a blob, and waits until a second head holds it, while its copy makes progress.
func (u *uploader) finish(ctx context.Context) (ref trivet.BlobRef, err error) {
	body, err := u.announced()
	if err != nil {
		return ref, err
	}
	finish := call{method: http.MethodPost, path: u.path + "/finish", body: body, timeout: finishTimeout}
	copied, lost := int64(0), time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, uploadPause) {
		err := u.request(ctx, finish, &ref)
		if err == nil || ctx.Err() != nil || !isHeadFault(err) {
			return ref, err
		}
		var up trivet.Upload
		getErr := u.request(ctx, call{method: http.MethodGet, path: u.path}, &up)
		if getErr == nil && up.Copied > copied {
			copied, lost, pause = up.Copied, time.Now(), 100*time.Millisecond
		}
		if time.Since(lost) > uploadTimeout {
			return ref, err
		}
		if err := sleep(ctx, pause); err != nil {
			return ref, err
		}
	}
}

func (u *uploader) announced() ([]byte, error) {
	return json.Marshal(trivet.BlobRef{Digest: u.options.Digest, Bytes: u.options.Bytes})
}

// begin opens the upload at the first head that serves; all other requests go to that head.
func (u *uploader) begin(ctx context.Context) (existing *trivet.BlobRef, err error) {
	body, err := u.announced()
	if err != nil {
		return nil, err
	}
	resp, _, err := u.c.send(ctx, call{method: http.MethodPost, path: "/v1/uploads", body: body})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var up trivet.Upload
	if err := json.NewDecoder(resp.Body).Decode(&up); err != nil {
		return nil, err
	}
	u.head, u.path = headOf(resp), "/v1/uploads/"+url.PathEscape(up.ID)
	return up.Blob, nil
}

// send appends until the head has everything. It fails when the head is unreachable for uploadTimeout.
func (u *uploader) send(ctx context.Context) error {
	offset, pause, lost := int64(0), 100*time.Millisecond, time.Time{}
	for {
		next, err := u.append(ctx, offset)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || isUploadRefused(err) {
			return err
		}
		if next > offset || lost.IsZero() {
			lost, pause = time.Now(), 100*time.Millisecond
		}
		if time.Since(lost) > uploadTimeout {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, uploadPause)
		var up trivet.Upload
		if getErr := u.request(ctx, call{method: http.MethodGet, path: u.path}, &up); getErr == nil {
			offset = up.Offset
		} else if errors.Is(getErr, trivet.ErrNotFound) {
			return err // why the head aborted it, such as a full disk
		}
	}
}

// isUploadRefused reports whether a retry at the same head cannot help.
func isUploadRefused(err error) bool {
	var p *trivet.Problem
	return errors.Is(err, errContent) || errors.As(err, &p) && !isHeadFault(err) && !errors.Is(err, trivet.ErrConflict)
}

// errContent is a failure of the content, not of the head.
var errContent = errors.New("read content")

// append sends the content from offset to its end.
func (u *uploader) append(ctx context.Context, offset int64) (next int64, err error) {
	if _, err := u.content.Seek(offset, io.SeekStart); err != nil {
		return offset, fmt.Errorf("%w: %w", errContent, err)
	}
	body := &countingReader{r: u.content, progress: u.options.Progress}
	defer body.stop()
	body.n.Store(offset)
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPatch, u.head+u.path+"?"+q.Encode(), body)
	if err != nil {
		return offset, err
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	u.c.identify(req)
	resp, err := u.c.http.Do(req)
	if failed := body.err.Load(); failed != nil {
		return offset, fmt.Errorf("%w: %w", errContent, *failed)
	}
	if err != nil {
		return body.n.Load(), err
	}
	if resp.StatusCode >= 300 {
		return body.n.Load(), readProblem(resp)
	}
	return body.n.Load(), resp.Body.Close()
}

// request sends a call to the head that has the upload.
func (u *uploader) request(ctx context.Context, cl call, out any) error {
	resp, err := u.c.try(ctx, u.head, cl)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

// abort aborts the upload, once the head has noticed that the last append was cut off. If the head is unreachable, it
// aborts the upload itself after a timeout.
func (u *uploader) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
	defer cancel()
	for {
		resp, err := u.c.try(ctx, u.head, call{method: http.MethodDelete, path: u.path})
		if err == nil {
			resp.Body.Close()
		}
		if !errors.Is(err, trivet.ErrConflict) || sleep(ctx, abortPause) != nil {
			return
		}
	}
}

// countingReader reports how much was read, and keeps the reader's own error apart from the connection's. The transport
// may still be reading after the request has failed: what is read after stop is not taken from the content.
type countingReader struct {
	n        atomic.Int64
	progress func(int64)
	err      atomic.Pointer[error]

	mu sync.Mutex
	r  io.Reader // guarded by mu; nil: stopped
}

var errRequestEnded = errors.New("the request has ended")

func (c *countingReader) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.r == nil {
		return 0, errRequestEnded
	}
	n, err := c.r.Read(b)
	at := c.n.Add(int64(n))
	if c.progress != nil && n > 0 {
		c.progress(at)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.err.Store(&err)
	}
	return n, err
}

// stop waits for a read that is in progress, and refuses further ones.
func (c *countingReader) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.r = nil
}

// Blobs lists the blobs of the head that responds.
func (c *Client) Blobs(ctx context.Context) (refs []trivet.BlobRef, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/blobs"}, &refs)
	return refs, err
}

// prepareCheck is how long a head may take before it sends the first result of a check, or its progress.
const prepareCheck = 30 * time.Second

// CheckBlobs verifies the copies of blobs on all heads, and calls result with the progress and the results, in no
// order. It returns when all copies were checked, and with req.Repair repaired where a good one exists. The heads stop
// when ctx ends.
func (c *Client) CheckBlobs(ctx context.Context, req trivet.BlobCheck, result func(trivet.BlobCopy)) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	resp, _, err := c.send(ctx, call{method: http.MethodPost, path: "/v1/blobs/check", body: body, timeout: -1,
		prepare: prepareCheck})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for lines := json.NewDecoder(resp.Body); ; {
		var found trivet.BlobCopy
		switch err := lines.Decode(&found); {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("check blobs: %w: the head stopped before the end", trivet.ErrUnavailable)
		case err != nil:
			return fmt.Errorf("check blobs: %w", err)
		case found.Head == "":
			return nil
		}
		result(found)
	}
}

// DeleteBlob removes a blob that no record refers to.
func (c *Client) DeleteBlob(ctx context.Context, digest string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: "/v1/blobs/" + url.PathEscape(digest)}, nil)
	return err
}
