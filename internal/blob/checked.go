package blob

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// What is served is verified: each chunk before it is sent, and again when it was not verified for a while. So a chunk
// that many machines fetch is hashed once and sent without a copy. The response that meets a damaged chunk ends there,
// so that its client tries another head, and the blob becomes an interrupted pull: its good chunks are kept, and the
// others are fetched from another head.

const (
	// checkLife is how long a verified chunk is served without being verified again.
	checkLife = 10 * time.Minute
	// maxChecked bounds the blobs whose verified chunks are remembered.
	maxChecked = 1024
)

// checked is the chunks of a blob that were verified.
type checked struct {
	begun time.Time
	mu    sync.Mutex
	ok    []bool // by chunk; guarded by mu, which is held while a chunk is verified: its other readers wait
}

// checkedOf returns what is known of a blob.
func (s *Store) checkedOf(d Digest, size int64) *checked {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.checked[d]
	if c == nil || time.Since(c.begun) > checkLife || int64(len(c.ok)) != chunksOf(size) {
		if len(s.checked) >= maxChecked {
			clear(s.checked)
		}
		c = &checked{begun: time.Now(), ok: make([]bool, chunksOf(size))}
		s.checked[d] = c
	}
	return c
}

// checkChunk verifies a chunk of a blob by the blob's chunk table.
func (s *Store) checkChunk(c *checked, d Digest, f *os.File, i int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ok[i] {
		return nil
	}
	table, err := s.table(d)
	sum := sha256.New()
	if err == nil {
		_, err = io.Copy(sum, io.NewSectionReader(f, i*ChunkBytes, ChunkBytes))
	}
	if isFaulty(err) {
		return s.unreadable("serve", d, err)
	}
	if err != nil {
		return s.fault("read", d, err)
	}
	if len(table) != len(c.ok)*sha256.Size || !bytes.Equal(table[i*sha256.Size:][:sha256.Size], sum.Sum(nil)) {
		return &trivet.Error{Op: "serve blob", Name: d.String(),
			Err:  fmt.Errorf("%w: damaged in the %d bytes at %d", trivet.ErrInvalid, ChunkBytes, i*ChunkBytes),
			Hint: "it is fetched from another head; if none holds it, import it again"}
	}
	c.ok[i] = true
	return nil
}

// unreadable is the error of a blob that the disk cannot read: it is damaged.
func (s *Store) unreadable(op string, d Digest, err error) error {
	s.noteFault(err)
	return &trivet.Error{Op: op + " blob", Name: d.String(),
		Err:  fmt.Errorf("%w: the disk cannot read it: %w", trivet.ErrInvalid, err),
		Hint: "it is fetched from another head; if none holds it, import it again"}
}

// setDamaged makes a blob an interrupted pull, unless its file is no longer the one that was read.
func (s *Store) setDamaged(d Digest, read *os.File, cause error) {
	s.names.Lock()
	defer s.names.Unlock()
	was, err := read.Stat()
	is, gone := os.Lstat(s.path(d))
	if err != nil || gone != nil || !os.SameFile(was, is) {
		return // another reader was first
	}
	now := time.Now()
	if err := os.Rename(s.path(d), s.path(d)+pullSuffix); err != nil {
		return
	}
	s.mu.Lock()
	delete(s.checked, d)
	s.damaged[d] = true
	s.mu.Unlock()
	_ = os.Chtimes(s.path(d)+pullSuffix, now, now) // an old one would be removed at the next start
	if s.opts.Damaged != nil {
		s.opts.Damaged(d, cause)
	}
}

// setRepaired removes what is left of a damaged file, and reports that the blob is complete again. s.names is held.
func (s *Store) setRepaired(d Digest) {
	s.mu.Lock()
	was := s.damaged[d]
	delete(s.damaged, d)
	s.mu.Unlock()
	if !was {
		return
	}
	_ = os.Remove(s.path(d) + pullSuffix) // there is one if it was imported again; if not now, the next start removes it
	if s.opts.Repaired != nil {
		s.opts.Repaired(d)
	}
}

// Damaged returns the blobs that were found to be damaged since the start, and are not repaired.
func (s *Store) Damaged() []Digest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.damaged))
}

// checkedWriter sends a blob's file to a client, each chunk after it was verified. [http.ServeContent] calls ReadFrom.
type checkedWriter struct {
	http.ResponseWriter
	store  *Store
	digest Digest
	file   *os.File
	known  *checked
}

// ReadFrom sends the next bytes of the file.
func (w *checkedWriter) ReadFrom(r io.Reader) (sent int64, err error) {
	limited, ok := r.(*io.LimitedReader)
	if !ok || limited.R != io.Reader(w.file) {
		return 0, errors.New("not the blob's file")
	}
	at, err := w.file.Seek(0, io.SeekCurrent)
	for err == nil && limited.N > 0 {
		i := at / ChunkBytes
		if err = w.store.checkChunk(w.known, w.digest, w.file, i); err != nil {
			break
		}
		n, failed := io.Copy(w.ResponseWriter, &io.LimitedReader{R: w.file, N: min(limited.N, (i+1)*ChunkBytes-at)})
		if isFaulty(failed) { // what was verified is no longer in the kernel's cache
			failed = w.store.unreadable("serve", w.digest, failed)
		}
		if failed == nil && n == 0 {
			failed = io.ErrUnexpectedEOF
		}
		sent, at, limited.N, err = sent+n, at+n, limited.N-n, failed
	}
	if errors.Is(err, trivet.ErrInvalid) {
		w.store.setDamaged(w.digest, w.file, err)
	}
	if err != nil { // what is below may note how the response ended
		_, _ = io.Copy(w.ResponseWriter, failing{err})
	}
	return sent, err
}

// Unwrap is for [http.ResponseController].
func (w *checkedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
