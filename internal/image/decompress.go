package image

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/trivet-project/trivet"
)

// maxWindow limits the memory that a compressed image can request, in bytes: that of 'zstd --long=27' and 'xz -9e' and
// more.
const maxWindow = 128 << 20

// Decompress returns the content of a stream. Errors of src are returned unchanged; truncated or damaged
// content is [trivet.ErrInvalid]. The reader must be closed; that does not close src. Zstd decodes on several
// processors.
func Decompress(src io.Reader, compression string) (io.ReadCloser, error) {
	d := &decoder{src: &origin{r: src}, compression: compression, end: func() {}}
	if err := d.open(); err != nil {
		return nil, d.why(err)
	}
	return d, nil
}

// decoder separates the errors of the content from those of its source.
type decoder struct {
	src         *origin
	compression string
	r           io.Reader
	end         func()
}

func (d *decoder) open() (err error) {
	in := bufio.NewReaderSize(d.src, 256<<10)
	switch d.compression {
	case None:
		d.r = d.src
		return nil
	case Zstd:
		if _, err := in.Peek(1); err != nil { // otherwise an empty file would be an empty image
			return err
		}
		z, err := zstd.NewReader(in, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(0))
		if err == nil {
			d.r, d.end = z, z.Close
		}
		return err
	case Gzip:
		d.r, err = gzip.NewReader(in)
		return err
	case XZ:
		d.r, err = xz.NewReader(newXZGuard(in))
		return err
	}
	return fmt.Errorf("compression %q is not known", d.compression)
}

// Read returns content.
func (d *decoder) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	if err == nil || err == io.EOF && d.src.failed() == nil {
		return n, err
	}
	return n, d.why(err)
}

// Close ends the decoder.
func (d *decoder) Close() error {
	d.end()
	return nil
}

func (d *decoder) why(err error) error {
	if failed := d.src.failed(); failed != nil {
		return failed
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it is cut off")
	}
	return fmt.Errorf("decompress %s: %w: %w", d.compression, trivet.ErrInvalid, err)
}

// origin keeps the error of the source. A decoder may read ahead, in another goroutine.
type origin struct {
	r   io.Reader
	mu  sync.Mutex
	err error // guarded by mu
}

func (o *origin) Read(p []byte) (int, error) {
	n, err := o.r.Read(p)
	if err != nil && err != io.EOF {
		o.mu.Lock()
		o.err = err
		o.mu.Unlock()
	}
	return n, err
}

func (o *origin) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
