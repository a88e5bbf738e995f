package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/peer"
)

// otherHead is another full head.
type otherHead struct {
	name, url string
	member    bool // not joining any more
}

func (b *Blobs) otherHeads() (list []otherHead) {
	for h := range b.Tables.Heads.AllShared() {
		if h.Name != b.Self && h.Serves() && h.Status.Peer != "" {
			list = append(list, otherHead{h.Name, h.Status.Peer, h.Status.State == trivet.HeadMember})
		}
	}
	return list
}

// call sends a request to another head's endpoint, by a connection for content.
func (b *Blobs) call(ctx context.Context, url, path string, in, out any) error {
	return peer.Call(ctx, b.client, url, path, in, out)
}

// queryTimeout bounds a query to another head, beyond what that one itself waits.
const queryTimeout = 2 * time.Second

// holding is what one head holds of a blob.
type holding struct {
	otherHead
	holdingResponse
	err error
}

// query queries other heads for what they hold of a blob, all at once, by statPath or usePath, and passes on the
// results as they arrive, until it has enough.
func (b *Blobs) query(ctx context.Context, heads []otherHead, path string, d blob.Digest,
	result func(holding) (enough bool)) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	var queries sync.WaitGroup
	defer queries.Wait()
	defer cancel()
	results := make(chan holding, len(heads))
	for _, head := range heads {
		queries.Go(func() {
			h := holding{otherHead: head}
			h.err = b.call(ctx, head.url, path, blobRequest{Digest: d.String()}, &h.holdingResponse)
			if h.Ref != nil && h.Ref.Digest != d.String() {
				h.holdingResponse = holdingResponse{}
			}
			results <- h
		})
	}
	for range heads {
		if result(<-results) {
			return
		}
	}
}

// locate finds heads to pull a blob from: the first that holds it, then the others, which may get it meanwhile. The
// content of an image that none holds is pulled from the bucket.
func (b *Blobs) locate(ctx context.Context, ref trivet.BlobRef) (full trivet.BlobRef, urls []string, err error) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return full, nil, err
	}
	heads := b.otherHeads()
	var failed, wrong error
	b.query(ctx, heads, statPath, d, func(h holding) bool {
		switch {
		case h.err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", h.name, h.err))
		case h.Ref == nil:
		case ref.Bytes != 0 && ref.Bytes != h.Ref.Bytes || ref.Chunks != "" && ref.Chunks != h.Ref.Chunks:
			wrong = fmt.Errorf("%w: %s holds %+v, wanted is %+v", trivet.ErrInvalid, h.name, *h.Ref, ref)
		default:
			full, urls = *h.Ref, []string{h.url + contentURL}
		}
		return urls != nil
	})
	switch {
	case ctx.Err() != nil:
		return full, nil, context.Cause(ctx)
	case urls != nil:
		return full, appendOthers(urls, heads), nil
	case wrong != nil:
		return full, nil, wrong
	}
	switch there, err := b.hasInBucket(ctx, ref, d); {
	case there:
		b.Log.Info("no head holds an image; reading it from the bucket", "blob", d)
		return ref, appendOthers([]string{bucketURL}, heads), nil
	case err != nil:
		return full, nil, errNoHolder(ref.Digest, trivet.ErrUnavailable, failed, err)
	case failed != nil:
		return full, nil, errNoHolder(ref.Digest, trivet.ErrUnavailable, failed)
	}
	return full, nil, errNoHolder(ref.Digest, trivet.ErrNotFound)
}

// appendOthers appends the URLs of the heads that are not there yet.
func appendOthers(urls []string, heads []otherHead) []string {
	for _, h := range heads {
		if u := h.url + contentURL; u != urls[0] {
			urls = append(urls, u)
		}
	}
	return urls
}
