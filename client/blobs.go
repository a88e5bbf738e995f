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
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
)

// PutOptions are what is known of content before it is sent.
type PutOptions struct {
	Digest string // "sha256:..."; empty: not known
	Bytes  int64  // 0: not known
	// Progress, if set, is told how many bytes a head has taken.
	Progress func(sent int64)
}

// The patience of an upload: the longest wait between its tries, how long a head may stay away or hold on to a
// connection that is dead, how long it may take to sync what it got, and the wait between tries to give up.
const (
	uploadPause   = 5 * time.Second
	uploadTimeout = 2 * time.Minute
	finishTimeout = 2 * time.Minute
	abortPause    = 50 * time.Millisecond
)

// PutBlob stores content and gives the reference to it. A connection that breaks is made anew and goes on where the
// head is. When that head is lost, or the content cannot be read again from where it must go on, it fails.
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
	head    string // that has the upload
	path    string
}

func (u *uploader) run(ctx context.Context) (ref trivet.BlobRef, err error) {
	there, err := u.begin(ctx)
	if err != nil || there != nil {
		if there != nil {
			ref = *there
		}
		return ref, err
	}
	if err := u.send(ctx); err != nil {
		u.abort(ctx)
		return ref, err
	}
	return u.finish(ctx)
}

// finish makes the upload a blob, and waits until a second head holds it, as long as that goes on.
func (u *uploader) finish(ctx context.Context) (ref trivet.BlobRef, err error) {
	body, err := u.announced()
	if err != nil {
		return ref, err
	}
	finish := call{method: http.MethodPost, path: u.path + "/finish", body: body, timeout: finishTimeout}
	copied, lost := int64(0), time.Now()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, uploadPause) {
		err := u.ask(ctx, finish, &ref)
		if err == nil || ctx.Err() != nil || !isHeadFault(err) {
			return ref, err
		}
		var up trivet.Upload
		if asked := u.ask(ctx, call{method: http.MethodGet, path: u.path}, &up); asked == nil && up.Copied > copied {
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

// begin opens the upload at whichever head serves; everything else goes to that one.
func (u *uploader) begin(ctx context.Context) (there *trivet.BlobRef, err error) {
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

// send appends until the head has everything. It gives up when the head stays away for too long.
func (u *uploader) send(ctx context.Context) error {
	offset, pause, lost := int64(0), 100*time.Millisecond, time.Time{}
	for {
		next, err := u.append(ctx, offset)
		if err == nil {
			return nil
		}
		var p *trivet.Problem
		if errors.Is(err, errContent) || ctx.Err() != nil || errors.As(err, &p) && !isHeadFault(err) && !errors.Is(err, trivet.ErrConflict) {
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
		if askErr := u.ask(ctx, call{method: http.MethodGet, path: u.path}, &up); askErr == nil {
			offset = up.Offset
		} else if errors.Is(askErr, trivet.ErrNotFound) {
			return err // why the head has given it up, such as that its disk is full
		}
	}
}

// errContent is a failure of the content, not of the head.
var errContent = errors.New("read content")

// append sends everything from offset on.
func (u *uploader) append(ctx context.Context, offset int64) (next int64, err error) {
	if _, err := u.content.Seek(offset, io.SeekStart); err != nil {
		return offset, fmt.Errorf("%w: %w", errContent, err)
	}
	body := &counted{r: u.content, tell: u.options.Progress}
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

// ask speaks to the head that has the upload.
func (u *uploader) ask(ctx context.Context, cl call, out any) error {
	resp, err := u.c.try(ctx, u.head, cl)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(resp.Body).Decode(out)
}

// abort gives the upload up, once the head has seen that the last piece was cut off. One that it cannot reach is
// given up by the head itself, in time.
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

// counted tells how much was read, and keeps the reader's own error apart from the connection's. The transport may
// still be reading when it has given up.
type counted struct {
	r    io.Reader
	n    atomic.Int64
	tell func(int64)
	err  atomic.Pointer[error]
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	at := c.n.Add(int64(n))
	if c.tell != nil && n > 0 {
		c.tell(at)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		c.err.Store(&err)
	}
	return n, err
}

// Blobs lists the blobs of the head that answers.
func (c *Client) Blobs(ctx context.Context) (refs []trivet.BlobRef, err error) {
	_, err = c.json(ctx, call{method: http.MethodGet, path: "/v1/blobs"}, &refs)
	return refs, err
}

// DeleteBlob removes a blob that no record refers to.
func (c *Client) DeleteBlob(ctx context.Context, digest string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: "/v1/blobs/" + url.PathEscape(digest)}, nil)
	return err
}
