package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
)

// blobRoutes serve content. It is stored from one stream, or by an upload: created, appended to over any number of
// connections, finished. An upload is at one head only; the blob is acknowledged when a second head holds it. Where
// none can, finish may be repeated.
func (h *Handler) blobRoutes() {
	ref, upload := reflect.TypeFor[trivet.BlobRef](), reflect.TypeFor[trivet.Upload]()
	write := route{verb: auth.Write, kind: "Image"}
	read := route{verb: auth.Read, kind: "Image"}
	add := func(rt route, method, path, summary string, serve func(http.ResponseWriter, *http.Request, *caller) error) {
		rt.method, rt.path, rt.summary, rt.serve = method, path, summary, serve
		h.add(rt)
	}
	read.out = reflect.TypeFor[[]trivet.BlobRef]()
	add(read, "GET", "/v1/blobs", "List the blobs of this head", h.listBlobs)
	read.out, read.outputs = reflect.TypeFor[string](), "application/octet-stream"
	add(read, "GET", "/v1/blobs/{digest}", "Read a blob, with ranges", h.getBlob)
	write.out, write.in, write.media, write.status = ref, reflect.TypeFor[string](), "application/octet-stream",
		http.StatusCreated
	write.query = []string{"digest: what the content must be, sha256:..."}
	write.outside = true
	add(write, "POST", "/v1/blobs", "Store a blob in one stream", h.putBlob)
	write.outside = false
	write.query, write.out, write.in, write.media = nil, upload, ref, ""
	add(write, "POST", "/v1/uploads", "Begin an upload", h.beginUpload)
	write.in, write.status = nil, 0
	add(write, "GET", "/v1/uploads/{id}", "Progress of an upload", h.getUpload)
	write.in, write.media, write.query = reflect.TypeFor[string](), "application/octet-stream",
		[]string{"offset: how far the upload is"}
	add(write, "PATCH", "/v1/uploads/{id}", "Append to an upload", h.appendUpload)
	write.in, write.media, write.query, write.out = ref, "", nil, ref
	write.outside = true
	add(write, "POST", "/v1/uploads/{id}/finish", "Make an upload a blob", h.finishUpload)
	write.in, write.out, write.status, write.outside = nil, nil, http.StatusNoContent, false
	add(write, "DELETE", "/v1/uploads/{id}", "Abort an upload", h.abortUpload)
	write.outside = true
	add(write, "DELETE", "/v1/blobs/{digest}", "Delete a blob that no record refers to", h.deleteBlob)
	write.in, write.out, write.outputs, write.status = reflect.TypeFor[trivet.BlobCheck](),
		reflect.TypeFor[trivet.BlobCopy](), "application/x-ndjson", 0
	add(write, "POST", "/v1/blobs/check", "Verify the copies of all heads, one JSON object per line; one without a "+
		"head is the end", h.checkBlobs)
}

func (h *Handler) listBlobs(w http.ResponseWriter, _ *http.Request, _ *caller) error {
	refs, err := h.Blobs.List()
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, append([]trivet.BlobRef{}, refs...))
}

// getBlob serves content as the boot server does, but to authenticated callers. Its errors are Problems, so missing
// content is found out first.
func (h *Handler) getBlob(w http.ResponseWriter, r *http.Request, _ *caller) error {
	d, err := blob.ParseDigest(r.PathValue("digest"))
	if err != nil {
		return err
	}
	if _, err := h.Copies.Find(r.Context(), d); err != nil {
		return err
	}
	r = r.Clone(r.Context())
	r.URL.Path = "/blob/" + d.String()
	h.Copies.APIHandler().ServeHTTP(&streamWriter{w, http.NewResponseController(w)}, r)
	return nil
}

func (h *Handler) putBlob(w http.ResponseWriter, r *http.Request, _ *caller) error {
	announced := trivet.BlobRef{Digest: r.URL.Query().Get("digest"), Bytes: max(r.ContentLength, 0)}
	ref, err := h.Blobs.Put(r.Context(), streamReader(w, r), announced)
	if err == nil {
		err = h.Copies.Secure(r.Context(), ref)
	}
	if err != nil {
		return err
	}
	return respond(w, http.StatusCreated, ref)
}

func (h *Handler) readRef(w http.ResponseWriter, r *http.Request) (ref trivet.BlobRef, err error) {
	body, err := h.readBody(w, r, 64<<10)
	if err == nil {
		err = apitypes.DecodeStrict(body, &ref)
	}
	return ref, err
}

// existingTimeout bounds the wait of a new upload for existing content to be at two heads.
const existingTimeout = 6 * time.Second

// beginUpload creates an upload, unless the announced content exists.
func (h *Handler) beginUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	announced, err := h.readRef(w, r)
	if err != nil {
		return err
	}
	if announced.Digest != "" {
		d, err := blob.ParseDigest(announced.Digest)
		if err != nil {
			return err
		}
		if ref, err := h.Copies.Use(r.Context(), d); err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), existingTimeout)
			defer cancel()
			if err := h.Copies.Secure(ctx, ref); err != nil {
				return err
			}
			return respond(w, http.StatusOK, trivet.Upload{Blob: &ref, Offset: ref.Bytes})
		}
	}
	id, err := h.Blobs.Begin()
	if err != nil {
		return err
	}
	return respond(w, http.StatusCreated, trivet.Upload{ID: id})
}

func (h *Handler) getUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if ref, err := h.Blobs.Finished(r.PathValue("id")); err == nil {
		return respond(w, http.StatusOK, trivet.Upload{ID: r.PathValue("id"), Offset: ref.Bytes, Blob: &ref,
			Copied: h.Copies.Replicated(r.Context(), ref)})
	}
	offset, err := h.Blobs.Offset(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, trivet.Upload{ID: r.PathValue("id"), Offset: offset})
}

func (h *Handler) appendUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return &trivet.FieldError{Field: "offset", Problem: "must be a number of bytes"}
	}
	next, err := h.Blobs.Append(r.Context(), r.PathValue("id"), offset, streamReader(w, r))
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, trivet.Upload{ID: r.PathValue("id"), Offset: next})
}

func (h *Handler) finishUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	announced, err := h.readRef(w, r)
	if err != nil {
		return err
	}
	ref, err := h.Blobs.Finish(r.Context(), r.PathValue("id"), announced)
	if err == nil {
		err = h.Copies.Secure(r.Context(), ref)
	}
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, ref)
}

func (h *Handler) abortUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return done(w, h.Blobs.Abort(r.PathValue("id")))
}

// deleteBlob refuses while a record refers to the blob, whichever head wrote it. A record that is created at this
// moment lacks it when its workflow is created or run, and can be imported again: content cannot become wrong, only
// missing.
func (h *Handler) deleteBlob(w http.ResponseWriter, r *http.Request, _ *caller) error {
	d, err := blob.ParseDigest(r.PathValue("digest"))
	if err != nil {
		return err
	}
	if err := h.fresh(r.Context()); err != nil {
		return fmt.Errorf("delete blob %s: %w", d, err)
	}
	if u, ok := h.Fleet.BlobUse(d.String()); ok {
		return &trivet.Error{Op: "delete blob", Name: d.String(), Hint: "delete that record first",
			Err: fmt.Errorf("%w: %s %s refers to it", trivet.ErrConflict, strings.ToLower(string(u.Kind)), u.Name)}
	}
	if err := h.Copies.Delete(r.Context(), d); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// maxChecks is how many blobs a check may name.
const maxChecks = 100

// checkBlobs verifies the copies of all heads. It ends when the client goes, or this head is about to stop.
func (h *Handler) checkBlobs(w http.ResponseWriter, r *http.Request, _ *caller) error {
	req, err := h.readCheck(w, r)
	if err != nil {
		return err
	}
	leave, err := h.enterWatch(r)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	go func() {
		select {
		case <-h.drain:
			stop()
		case <-ctx.Done():
		}
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	conn := http.NewResponseController(w)
	lines := json.NewEncoder(&streamWriter{w, conn})
	send := func(c trivet.BlobCopy) error { return errors.Join(lines.Encode(c), conn.Flush()) }
	if err := h.Copies.Check(ctx, req, send); err != nil {
		return nil // the response has begun, so it can only be cut off
	}
	return send(trivet.BlobCopy{})
}

// readCheck returns what is to be checked. Blobs that are named must be known.
func (h *Handler) readCheck(w http.ResponseWriter, r *http.Request) (req trivet.BlobCheck, err error) {
	body, err := h.readBody(w, r, 64<<10)
	if err == nil {
		err = apitypes.DecodeStrict(body, &req)
	}
	if err == nil && len(req.Digests) > maxChecks {
		err = &trivet.FieldError{Field: "digests",
			Problem: fmt.Sprintf("has more than %d; with none, all blobs are checked", maxChecks)}
	}
	for _, digest := range req.Digests {
		if err != nil {
			break
		}
		err = h.knowsBlob(r.Context(), digest)
	}
	return req, err
}

// knowsBlob requires that a record refers to a blob or a head holds it.
func (h *Handler) knowsBlob(ctx context.Context, digest string) error {
	d, err := blob.ParseDigest(digest)
	if err != nil {
		return err
	}
	if _, referenced := h.Fleet.BlobUse(digest); referenced {
		return nil
	}
	_, err = h.Copies.Find(ctx, d)
	return err
}

// hasBlob requires that a head holds a record's content, and makes the heads keep it until the record is written. The
// others fetch it when they see the record.
func (h *Handler) hasBlob(ctx context.Context, field string, ref trivet.BlobRef) error {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return &trivet.FieldError{Field: field + ".digest", Problem: err.Error()}
	}
	stored, err := h.Copies.Use(ctx, d)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return &trivet.FieldError{Field: field + ".digest", Problem: ref.Digest + " is on no head; upload it first"}
	case err != nil:
		return err
	case ref.Bytes != stored.Bytes || ref.Chunks != "" && ref.Chunks != stored.Chunks:
		problem := fmt.Sprintf("differs from the stored blob: bytes %d, chunks %s", stored.Bytes, stored.Chunks)
		return &trivet.FieldError{Field: field, Problem: problem}
	}
	return nil
}
