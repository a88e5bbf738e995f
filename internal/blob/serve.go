package blob

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// Handler serves GET and HEAD of /blob/<digest>, with ranges, and of /blob/<digest>.chunks, the chunk table. Files
// are sent by zero-copy if w is of a plain TCP connection, or forwards ReadFrom to one. Chunks are verified: see
// checked.go.
func (s *Store) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed: blobs are read-only here", http.StatusMethodNotAllowed)
		return
	}
	d, isTable, err := parsePath(r.URL.Path)
	if err == nil && isTable {
		err = s.serveTable(w, r, d)
	} else if err == nil {
		err = s.serveBlob(w, r, d)
	}
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
	}
}

func parsePath(path string) (d Digest, isTable bool, err error) {
	name, isTable := strings.CutSuffix(strings.TrimPrefix(path, "/blob/"), tableSuffix)
	d, err = ParseDigest(name)
	return d, isTable, err
}

func (s *Store) serveBlob(w http.ResponseWriter, r *http.Request, d Digest) error {
	f, size, err := s.Get(d)
	if err != nil {
		return err
	}
	defer f.Close()
	if strings.Contains(r.Header.Get("Range"), ",") { // several ranges are copied, not sent; the whole is valid, too
		r = r.Clone(r.Context())
		r.Header.Del("Range")
	}
	s.noteUse(d, f)
	setHeaders(w, d)
	http.ServeContent(&checkedWriter{w, s, d, f, s.checkedOf(d, size)}, r, "", time.Time{}, f)
	return nil
}

func (s *Store) serveTable(w http.ResponseWriter, r *http.Request, d Digest) error {
	table, err := s.table(d)
	if err != nil {
		return err
	}
	setHeaders(w, DigestOf(table))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(table))
	return nil
}

// setHeaders declares that the content of this URL never changes.
func setHeaders(w http.ResponseWriter, d Digest) {
	w.Header().Set("ETag", `"`+d.String()+`"`)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", "application/octet-stream")
}

func statusOf(err error) int {
	switch {
	case errors.Is(err, trivet.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, trivet.ErrNotFound):
		return http.StatusNotFound
	}
	return http.StatusServiceUnavailable
}
