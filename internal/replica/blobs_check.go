package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/peer"
)

// checkPath is the endpoint for checks: a GET, whose response is a stream of [trivet.BlobCopy], one in a line.
const checkPath = "blobs/check"

const (
	// checkRate bounds the reading of a check, in bytes a second, so that serving goes on.
	checkRate = 128 << 20
	// checkInterval is the time between two reports of progress.
	checkInterval = time.Second
)

// Check verifies the copies of all full heads and of the bucket, each one at a time, and calls result with what they find, and with
// their progress. Results are not called concurrently. A copy that is damaged is served no more; it, and what is
// missing, is fetched from a good copy, with req.Repair before Check returns. Check ends with ctx, also on the other
// heads, and with the error of result.
func (b *Blobs) Check(ctx context.Context, req trivet.BlobCheck, result func(trivet.BlobCopy) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var lock sync.Mutex
	locked := func(c trivet.BlobCopy) error {
		lock.Lock()
		defer lock.Unlock()
		err := endOf(ctx)
		if err == nil {
			err = result(c)
		}
		if err != nil {
			stop(err)
		}
		return err
	}
	var heads sync.WaitGroup
	heads.Go(func() {
		if err := b.checkOwn(ctx, req, locked); err != nil {
			_ = locked(trivet.BlobCopy{Head: b.Self, State: trivet.CopyUnknown, Problem: err.Error()})
		}
	})
	heads.Go(func() {
		if err := b.checkBucket(ctx, req, locked); err != nil {
			_ = locked(trivet.BlobCopy{Head: trivet.BucketCopy, State: trivet.CopyUnknown, Problem: err.Error()})
		}
	})
	for _, h := range b.otherHeads() {
		heads.Go(func() {
			if err := b.checkOther(ctx, h, req, locked); err != nil {
				_ = locked(trivet.BlobCopy{Head: h.name, State: trivet.CopyUnknown, Problem: err.Error()})
			}
		})
	}
	heads.Wait()
	return endOf(ctx)
}

// endOf returns why a context has ended; nil if it has not.
func endOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

// checkOwn checks this head's copies. It returns the first error of result.
func (b *Blobs) checkOwn(ctx context.Context, req trivet.BlobCheck, result func(trivet.BlobCopy) error) error {
	digests, err := b.toCheck(req.Digests)
	if err != nil {
		return err
	}
	for _, d := range digests {
		if err := b.checkOne(ctx, d, req.Repair, result); err != nil {
			return err
		}
	}
	return nil
}

// toCheck returns the blobs that this head holds, or lacks although a record refers to them, of those that are named,
// in order.
func (b *Blobs) toCheck(names []string) (digests []blob.Digest, err error) {
	held, err := b.Store.Held()
	if err != nil {
		return nil, err
	}
	for _, h := range held {
		if b.Store.Has(h.Digest) {
			digests = append(digests, h.Digest)
		}
	}
	for _, ref := range b.Missing() {
		if d, err := blob.ParseDigest(ref.Digest); err == nil {
			digests = append(digests, d)
		}
	}
	digests = append(digests, b.Store.Damaged()...)
	slices.SortFunc(digests, func(x, y blob.Digest) int { return slices.Compare(x[:], y[:]) })
	digests = slices.Compact(digests)
	if len(names) == 0 {
		return digests, nil
	}
	return slices.DeleteFunc(digests, func(d blob.Digest) bool { return !slices.Contains(names, d.String()) }), nil
}

// checkOne checks one copy, and reports its progress meanwhile.
func (b *Blobs) checkOne(ctx context.Context, d blob.Digest, repair bool, result func(trivet.BlobCopy) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var read atomic.Int64
	found := make(chan trivet.BlobCopy, 1)
	go func() {
		defer close(found)
		select {
		case b.checking <- struct{}{}:
			defer func() { <-b.checking }()
			found <- b.examine(ctx, d, repair, b.pace(checkRate, read.Store))
		case <-ctx.Done():
		}
	}()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		select {
		case c := <-found:
			if err := endOf(ctx); err != nil {
				return err
			}
			return result(c)
		case <-tick.C:
			err := result(trivet.BlobCopy{Head: b.Self, Digest: d.String(), State: trivet.CopyChecking,
				Bytes: read.Load()})
			if err != nil {
				stop()
				<-found
				return err
			}
		}
	}
}

// serveCheck checks this head's copies for another head.
func (b *Blobs) serveCheck(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	req := trivet.BlobCheck{Digests: query["digest"], Repair: query.Get("repair") == "1"}
	conn := http.NewResponseController(w)
	lines := json.NewEncoder(&progressWriter{w, conn})
	send := func(c trivet.BlobCopy) error { return errors.Join(lines.Encode(c), conn.Flush()) }
	if err := b.checkOwn(r.Context(), req, send); err != nil {
		_ = send(trivet.BlobCopy{Head: b.Self, State: trivet.CopyUnknown, Problem: err.Error()})
	}
	_ = send(trivet.BlobCopy{}) // a caller that has gone needs no end
}

// checkOther lets another head check its copies.
func (b *Blobs) checkOther(ctx context.Context, h otherHead, req trivet.BlobCheck,
	result func(trivet.BlobCopy) error) error {
	query := url.Values{"digest": req.Digests}
	if req.Repair {
		query.Set("repair", "1")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+peer.Prefix+checkPath+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := b.client.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: it responds with %s", trivet.ErrUnavailable, resp.Status)
	}
	for lines := json.NewDecoder(resp.Body); ; {
		var c trivet.BlobCopy
		switch err := lines.Decode(&c); {
		case errors.Is(err, io.EOF):
			return fmt.Errorf("%w: it stopped before the end of the check", trivet.ErrUnavailable)
		case err != nil:
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		case c.Head == "":
			return nil
		}
		c.Head = h.name
		if err := result(c); err != nil {
			return err
		}
	}
}
