package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/trivet-project/trivet"
)

// beginTimeout bounds how long a client waits until a pull has begun. Firmware and agents then try other heads.
const beginTimeout = 10 * time.Second

// Handler serves as [Store.Handler] does. A blob that the store does not have and for which ref returns a reference
// is pulled urgently and served meanwhile, with ranges.
func (p *Puller) Handler(ref func(context.Context, Digest) (trivet.BlobRef, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, isTable, err := parsePath(r.URL.Path)
		if err != nil || p.store.Has(d) || r.Method != http.MethodGet && r.Method != http.MethodHead {
			p.store.serve(w, r)
			return
		}
		var wanted trivet.BlobRef
		if wanted, err = ref(r.Context(), d); err == nil {
			err = p.serve(w, r, d, isTable, wanted)
		}
		if err != nil {
			http.Error(w, err.Error(), statusOf(err))
		}
	})
}

func (p *Puller) serve(w http.ResponseWriter, r *http.Request, d Digest, isTable bool, ref trivet.BlobRef) error {
	l, err := p.begin(ref)
	if err != nil {
		return err
	}
	if l == nil {
		p.store.serve(w, r)
		return nil
	}
	l.setUrgent()
	ctx, cancel := context.WithTimeoutCause(r.Context(), beginTimeout, errNoHead)
	defer cancel()
	if err := l.wait(ctx, (*pull).hasBegun); err != nil {
		return err
	}
	file, err := p.openPulled(d)
	if errors.Is(err, trivet.ErrNotFound) { // complete by now
		p.store.serve(w, r)
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if isTable {
		setHeaders(w, DigestOf(l.table))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(l.table))
		return nil
	}
	setHeaders(w, d)
	http.ServeContent(w, r, "", time.Time{}, &pullReader{ctx: r.Context(), pull: l, file: file, size: l.ref.Bytes})
	return nil
}

var errNoHead = fmt.Errorf("%w: no other head serves it now", trivet.ErrUnavailable)

func (p *Puller) openPulled(d Digest) (*os.File, error) {
	f, err := os.Open(p.store.path(d) + pullSuffix)
	if err != nil {
		return nil, p.store.fault("read", d, err)
	}
	return f, nil
}

// pullReader reads a blob while it is pulled.
type pullReader struct {
	ctx      context.Context
	pull     *pull
	file     *os.File
	size, at int64
}

func (r *pullReader) Read(b []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	i := r.at / ChunkBytes
	if err := r.pull.waitChunk(r.ctx, i); err != nil {
		return 0, err
	}
	b = b[:min(int64(len(b)), min(r.size, (i+1)*ChunkBytes)-r.at)]
	n, err := r.file.ReadAt(b, r.at)
	r.at += int64(n)
	return n, err
}

func (r *pullReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("%w: seek to %d", trivet.ErrInvalid, offset)
	}
	r.at = offset
	return offset, nil
}
