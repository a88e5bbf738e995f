package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"
)

// Packed is content compressed by zstd while it is read. A seek compresses it again from the beginning: an upload does
// so after a broken connection, and compares what was stored with Digest.
type Packed struct {
	ctx  context.Context // of the command: the methods of a file accept none
	open func() (io.ReadCloser, error)

	out   *io.PipeReader // nil: not open
	done  chan struct{}  // closed when the goroutine that compresses has ended
	raw   int64          // bytes of the content; to be read after done
	at    int64
	sum   hash.Hash // of all before at
	ended bool
}

// Pack returns the content that open returns, compressed. It must be closed.
func Pack(ctx context.Context, open func() (io.ReadCloser, error)) *Packed {
	return &Packed{ctx: ctx, open: open}
}

// Read returns compressed content.
func (p *Packed) Read(b []byte) (int, error) {
	if p.out == nil {
		p.start()
	}
	n, err := p.out.Read(b)
	p.sum.Write(b[:n])
	p.at += int64(n)
	p.ended = p.ended || err == io.EOF
	return n, err
}

// Seek accepts positions from the beginning only.
func (p *Packed) Seek(offset int64, whence int) (int64, error) {
	if whence != io.SeekStart {
		return p.at, fmt.Errorf("seek in an image that is compressed: %w", errors.ErrUnsupported)
	}
	if offset == p.at {
		return offset, nil
	}
	p.Close()
	_, err := io.CopyN(io.Discard, p, offset)
	return p.at, err
}

// Digest returns the digest of what was read.
func (p *Packed) Digest() string {
	if p.sum == nil {
		return ""
	}
	return "sha256:" + hex.EncodeToString(p.sum.Sum(nil))
}

// RawBytes returns the size of the content; 0 before its end.
func (p *Packed) RawBytes() int64 {
	if !p.ended {
		return 0
	}
	<-p.done
	return p.raw
}

// Close stops the compression.
func (p *Packed) Close() error {
	if p.out != nil {
		p.out.Close()
		<-p.done
		p.out, p.at, p.ended = nil, 0, false
	}
	return nil
}

func (p *Packed) start() {
	out, in := io.Pipe()
	p.out, p.done, p.sum, p.raw = out, make(chan struct{}), sha256.New(), 0
	go func() {
		defer close(p.done)
		raw, err := p.compress(in)
		p.raw = raw
		in.CloseWithError(err) // io.EOF if it is nil
	}()
}

func (p *Packed) compress(out io.Writer) (raw int64, err error) {
	content, err := p.open()
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	z, err := zstd.NewWriter(out)
	if err != nil {
		return 0, err
	}
	// Not by its ReadFrom, which stores an error of the source while a goroutine of its own may store one of out.
	raw, err = io.Copy(struct{ io.Writer }{z}, readerOf{p.ctx, content})
	return raw, errors.Join(err, z.Close())
}

// readerOf stops when its context ends. It returns the end by itself, as what is compressed depends on that, too.
type readerOf struct {
	ctx context.Context
	r   io.Reader
}

func (r readerOf) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.r.Read(b)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}
