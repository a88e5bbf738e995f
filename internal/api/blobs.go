package api

import (
	"context"
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

// blobRoutes serve content. It comes in by one stream, or by an upload: begun, appended to over any number of connections,
// finished. An upload is at one head only; what it becomes is acknowledged when a second one holds it. Where none can,
// finishing may be said again.
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
	write.out, write.in, write.media, write.status = ref, reflect.TypeFor[string](), "application/octet-stream", http.StatusCreated
	write.query = []string{"digest: what the content must be, sha256:..."}
	add(write, "POST", "/v1/blobs", "Store a blob in one stream", h.putBlob)
	write.query, write.out, write.in, write.media = nil, upload, ref, ""
	add(write, "POST", "/v1/uploads", "Begin an upload, announcing what is known of it", h.beginUpload)
	write.in, write.status = nil, 0
	add(write, "GET", "/v1/uploads/{id}", "How far an upload is", h.askUpload)
	write.in, write.media, write.query = reflect.TypeFor[string](), "application/octet-stream", []string{"offset: how far the upload is"}
	add(write, "PATCH", "/v1/uploads/{id}", "Append to an upload", h.appendUpload)
	write.in, write.media, write.query, write.out = ref, "", nil, ref
	add(write, "POST", "/v1/uploads/{id}/finish", "Make an upload a blob", h.finishUpload)
	write.in, write.out, write.status = nil, nil, http.StatusNoContent
	add(write, "DELETE", "/v1/uploads/{id}", "Give an upload up", h.abortUpload)
	add(write, "DELETE", "/v1/blobs/{digest}", "Delete a blob that no record refers to", h.deleteBlob)
}

func (h *Handler) listBlobs(w http.ResponseWriter, _ *http.Request, _ *caller) error {
	refs, err := h.Blobs.List()
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, append([]trivet.BlobRef{}, refs...))
}

// getBlob serves content as the boot door does, but to callers only. Its errors are Problems, so what is missing is found
// out first.
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
	h.Copies.APIHandler().ServeHTTP(&steadyWriter{w, http.NewResponseController(w)}, r)
	return nil
}

func (h *Handler) putBlob(w http.ResponseWriter, r *http.Request, _ *caller) error {
	announced := trivet.BlobRef{Digest: r.URL.Query().Get("digest"), Bytes: max(r.ContentLength, 0)}
	ref, err := h.Blobs.Put(r.Context(), steady(w, r), announced)
	if err == nil {
		err = h.Copies.Secure(r.Context(), ref)
	}
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, ref)
}

func readRef(w http.ResponseWriter, r *http.Request) (ref trivet.BlobRef, err error) {
	body, err := readBody(w, r, 64<<10)
	if err == nil {
		err = apitypes.DecodeStrict(body, &ref)
	}
	return ref, err
}

// thereTime bounds what the beginning of an upload waits for content that is at another head, or at this one only.
const thereTime = 6 * time.Second

// beginUpload opens an upload, unless the announced content is there.
func (h *Handler) beginUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	announced, err := readRef(w, r)
	if err != nil {
		return err
	}
	if announced.Digest != "" {
		d, err := blob.ParseDigest(announced.Digest)
		if err != nil {
			return err
		}
		if ref, err := h.Copies.Find(r.Context(), d); err == nil {
			ctx, cancel := context.WithTimeout(r.Context(), thereTime)
			defer cancel()
			if err := h.Copies.Secure(ctx, ref); err != nil {
				return err
			}
			return answer(w, http.StatusOK, trivet.Upload{Blob: &ref, Offset: ref.Bytes})
		}
	}
	id, err := h.Blobs.Begin()
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, trivet.Upload{ID: id})
}

func (h *Handler) askUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	if ref, err := h.Blobs.Finished(r.PathValue("id")); err == nil {
		return answer(w, http.StatusOK, trivet.Upload{ID: r.PathValue("id"), Offset: ref.Bytes, Blob: &ref, Copied: h.Copies.Replicated(r.Context(), ref)})
	}
	offset, err := h.Blobs.Offset(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, trivet.Upload{ID: r.PathValue("id"), Offset: offset})
}

func (h *Handler) appendUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil || offset < 0 {
		return &trivet.FieldError{Field: "offset", Problem: "must be a number of bytes"}
	}
	next, err := h.Blobs.Append(r.Context(), r.PathValue("id"), offset, steady(w, r))
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, trivet.Upload{ID: r.PathValue("id"), Offset: next})
}

func (h *Handler) finishUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	announced, err := readRef(w, r)
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
	return answer(w, http.StatusOK, ref)
}

func (h *Handler) abortUpload(w http.ResponseWriter, r *http.Request, _ *caller) error {
	return done(w, h.Blobs.Abort(r.PathValue("id")))
}

// deleteBlob refuses while a record refers to the blob, whichever head has written that. One that comes to refer to it at this
// very moment finds it gone when its workflow is made or run, and can be imported again: content cannot become wrong, only
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

// hasBlob wants a record's content to be at a head, as the record tells it. The others get it when they see the record.
func (h *Handler) hasBlob(ctx context.Context, field string, ref trivet.BlobRef) error {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return &trivet.FieldError{Field: field + ".digest", Problem: err.Error()}
	}
	there, err := h.Copies.Find(ctx, d)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return &trivet.FieldError{Field: field + ".digest", Problem: ref.Digest + " is at no head; upload it first"}
	case err != nil:
		return err
	case ref.Bytes != there.Bytes || ref.Chunks != "" && ref.Chunks != there.Chunks:
		return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("is not that of the blob there: bytes %d, chunks %s", there.Bytes, there.Chunks)}
	}
	return nil
}
