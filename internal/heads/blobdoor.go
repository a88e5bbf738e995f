package heads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
)

// blobDoor is where a head's blobs are for other heads, as a base of [blob.Fetcher.Fetch].
const blobDoor = Prefix + "content"

// heldAsk names a blob; dropped says whether the head has deleted something.
type (
	heldAsk struct {
		Digest string `json:"digest"`
	}
	dropped struct {
		Dropped bool `json:"dropped"`
	}
)

// blobRoutes let full heads ask for blobs, read them, and have others get or delete them.
func (d *Door) blobRoutes() {
	b := d.Blobs
	d.mux.HandleFunc("GET "+blobDoor+"/blob/{name}", func(w http.ResponseWriter, r *http.Request) {
		if _, err := d.fullHead(r); err != nil {
			d.Log.Warn("refused a head", "path", r.URL.Path, "from", r.RemoteAddr, "error", auth.Redact(err.Error()))
			http.Error(w, "only members read here", http.StatusForbidden)
			return
		}
		http.StripPrefix(blobDoor, b.Store.Handler()).ServeHTTP(&steady{w, http.NewResponseController(w)}, r)
	})
	for path, do := range map[string]func(context.Context, trivet.BlobRef, blob.Digest) (any, error){
		"held": b.held, "pull": b.pull, "drop": b.drop,
	} {
		d.mux.HandleFunc("POST "+Prefix+"blobs/"+path, d.answered(d.fullHead, func(r *http.Request, _ auth.Peer, body []byte) (any, error) {
			var ref trivet.BlobRef
			if err := json.Unmarshal(body, &ref); err != nil {
				return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
			}
			digest, err := blob.ParseDigest(ref.Digest)
			if err != nil {
				return nil, err
			}
			return do(r.Context(), ref, digest)
		}))
	}
}

// fullHead lets in members that may hold what machines and people may read: a witness may not.
func (d *Door) fullHead(r *http.Request) (auth.Peer, error) {
	p, err := d.member(r)
	if err == nil && p.Role != auth.PeerHead {
		err = fmt.Errorf("%w: a %s has neither blobs nor logs", trivet.ErrForbidden, p.Role)
	}
	return p, err
}

func (b *Blobs) held(_ context.Context, _ trivet.BlobRef, d blob.Digest) (any, error) {
	if ref, err := b.Store.Stat(d); err == nil {
		return Holding{Ref: &ref, Bytes: ref.Bytes}, nil
	}
	got, _ := b.puller.Progress(d)
	return Holding{Bytes: got}, nil
}

// pullWait is how long a head that was asked to pull a blob waits with its answer.
const pullWait = 2 * time.Second

// pull begins to get a blob, which goes on after the answer.
func (b *Blobs) pull(ctx context.Context, ref trivet.BlobRef, d blob.Digest) (any, error) {
	wait, cancel := context.WithTimeoutCause(ctx, pullWait, errGoesOn)
	defer cancel()
	err := b.puller.PullUrgent(wait, ref)
	if err != nil && !errors.Is(err, errGoesOn) {
		got, _ := b.puller.Progress(d)
		return Holding{Bytes: got, Problem: err.Error()}, nil
	}
	return b.held(ctx, ref, d)
}

var errGoesOn = errors.New("the pull goes on")

// drop deletes a blob for another head, unless this one knows a record that refers to it.
func (b *Blobs) drop(ctx context.Context, _ trivet.BlobRef, d blob.Digest) (any, error) {
	if use, ok := b.Fleet.BlobUse(d.String()); ok {
		return nil, &trivet.Error{Op: "delete blob", Name: d.String(),
			Err: fmt.Errorf("%w: %s %s refers to it", trivet.ErrConflict, strings.ToLower(string(use.Kind)), use.Name)}
	}
	err := b.puller.Delete(ctx, d)
	if errors.Is(err, trivet.ErrNotFound) {
		return dropped{}, nil
	}
	return dropped{Dropped: err == nil}, err
}

// steady writes as long as the other side reads.
type steady struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (s *steady) Write(p []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(20 * time.Second)) // where there is none to set, there is no connection to hold
	return s.ResponseWriter.Write(p)
}
