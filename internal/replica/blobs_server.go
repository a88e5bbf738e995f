package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/peer"
)

// The endpoints for blobs. Content is at contentPath, as [blob.Fetcher.Fetch] reads it.
const (
	contentPath = "blobs/content"
	statPath    = "blobs/stat"
	usePath     = "blobs/use"
	pullPath    = "blobs/pull"
	deletePath  = "blobs/delete"

	contentURL = peer.Prefix + contentPath
)

type (
	// blobRequest names a blob.
	blobRequest struct {
		Digest string `json:"digest"`
	}
	// holdingResponse is what a head holds of a blob.
	holdingResponse struct {
		Ref     *trivet.BlobRef `json:"ref,omitempty"`     // nil: it does not hold all of it
		Bytes   int64           `json:"bytes,omitempty"`   // how much it holds
		Problem string          `json:"problem,omitempty"` // why it pulls no more now
	}
	deleteResponse struct {
		Deleted bool `json:"deleted"`
	}
)

// Register adds the endpoints by which full heads stat blobs, read them, and make other heads keep, pull, check or
// delete them.
func (b *Blobs) Register(s *peer.Server) {
	s.RegisterHandler(contentPath+"/blob/{name}", peer.FullMember, b.contentHandler())
	s.RegisterHandler(checkPath, peer.FullMember, http.HandlerFunc(b.serveCheck))
	for path, do := range map[string]func(context.Context, trivet.BlobRef, blob.Digest) (any, error){
		statPath: b.stat, usePath: b.use, pullPath: b.pull, deletePath: b.delete,
	} {
		s.Register(peer.Endpoint{Path: path, Access: peer.FullMember, Handle: blobHandler(do)})
	}
}

func (b *Blobs) contentHandler() http.Handler {
	store := http.StripPrefix(contentURL, b.Store.Handler())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		store.ServeHTTP(&progressWriter{w, http.NewResponseController(w)}, r)
	})
}

func blobHandler(do func(context.Context, trivet.BlobRef, blob.Digest) (any, error)) func(*http.Request, auth.Peer,
	[]byte) (any, error) {
	return func(r *http.Request, _ auth.Peer, body []byte) (any, error) {
		var ref trivet.BlobRef
		if err := json.Unmarshal(body, &ref); err != nil {
			return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		digest, err := blob.ParseDigest(ref.Digest)
		if err != nil {
			return nil, err
		}
		return do(r.Context(), ref, digest)
	}
}

func (b *Blobs) stat(_ context.Context, _ trivet.BlobRef, d blob.Digest) (any, error) {
	if ref, err := b.Store.Stat(d); err == nil {
		return holdingResponse{Ref: &ref, Bytes: ref.Bytes}, nil
	}
	got, _ := b.puller.Progress(d)
	return holdingResponse{Bytes: got}, nil
}

// pullWait is how long a head delays its response to a request to pull a blob.
const pullWait = 2 * time.Second

// errPullContinues is the cause of the end of the wait, not of the pull.
var errPullContinues = errors.New("the pull continues")

// pull starts to pull a blob. The pull continues after the response.
func (b *Blobs) pull(ctx context.Context, ref trivet.BlobRef, d blob.Digest) (any, error) {
	wait, cancel := context.WithTimeoutCause(ctx, pullWait, errPullContinues)
	defer cancel()
	err := b.puller.PullUrgent(wait, ref)
	if err != nil && !errors.Is(err, errPullContinues) {
		got, _ := b.puller.Progress(d)
		return holdingResponse{Bytes: got, Problem: err.Error()}, nil
	}
	return b.stat(ctx, ref, d)
}

// delete deletes a blob for another head, unless this one knows a record that refers to it.
func (b *Blobs) delete(ctx context.Context, _ trivet.BlobRef, d blob.Digest) (any, error) {
	if use, ok := b.Tables.BlobUse(d.String()); ok {
		return nil, errReferenced(d, use.Kind, use.Name)
	}
	err := b.puller.Delete(ctx, d)
	if errors.Is(err, trivet.ErrNotFound) {
		return deleteResponse{}, nil
	}
	return deleteResponse{Deleted: err == nil}, err
}

// writeTimeout bounds one write to a reader of content.
const writeTimeout = 20 * time.Second

// progressWriter extends the connection's deadline as long as the client reads.
type progressWriter struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (w *progressWriter) Write(p []byte) (int, error) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)) // fails only where there is no connection to bound
	return w.ResponseWriter.Write(p)
}
