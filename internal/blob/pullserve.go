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

// beginTime is how long somebody who asks for a blob that is not here waits for another head to say that it has it. Firmware
// and agents know other heads, and go there.
const beginTime = 10 * time.Second

// Handler serves as [Store.Handler] does. What is not here and is known to ref is pulled, ahead of what nobody waits for, and
// served while it comes, ranges too.
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
	l.hasten()
	first, cancel := context.WithTimeoutCause(r.Context(), beginTime, errNoHead)
	defer cancel()
	if err := l.wait(first, (*pull).hasBegun); err != nil {
		return err
	}
	file, err := p.openPulled(d)
	if errors.Is(err, trivet.ErrNotFound) { // it is whole by now
		p.store.serve(w, r)
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if isTable {
		lasting(w, DigestOf(l.table))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(l.table))
		return nil
	}
	lasting(w, d)
	http.ServeContent(w, r, "", time.Time{}, &pulled{ctx: r.Context(), pull: l, file: file, size: l.ref.Bytes})
	return nil
}

var errNoHead = fmt.Errorf("%w: no other head gives it now", trivet.ErrUnavailable)

func (p *Puller) openPulled(d Digest) (*os.File, error) {
	f, err := os.Open(p.store.path(d) + pullSuffix)
	if err != nil {
		return nil, p.store.fault("read", d, err)
	}
	return f, nil
}

// pulled reads a blob while it comes.
type pulled struct {
	ctx      context.Context
	pull     *pull
	file     *os.File
	size, at int64
}

func (r *pulled) Read(b []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	i := r.at / ChunkBytes
	if err := r.pull.want(r.ctx, i); err != nil {
		return 0, err
	}
	b = b[:min(int64(len(b)), min(r.size, (i+1)*ChunkBytes)-r.at)]
	n, err := r.file.ReadAt(b, r.at)
	r.at += int64(n)
	return n, err
}

func (r *pulled) Seek(offset int64, whence int) (int64, error) {
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
