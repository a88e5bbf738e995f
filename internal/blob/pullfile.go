package blob

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// pullSuffix is the suffix of the file of a blob that is being pulled; it has holes where chunks are missing. Its
// chunks are checked against the chunk table when the pull resumes, so it needs no other record and no sync before
// its end.
const pullSuffix = ".pull"

// pull runs one pull. Its chunks are kept for the next attempt, unless the disk is full or fails, or the data is
// another blob: of a file that the disk cannot read or write nothing is used, not even its space. What a sync has not
// written would be read from the kernel's cache, and be taken for written.
func (p *Puller) pull(l *pull) error {
	ref, urls, err := p.cfg.Locate(l.ctx, l.ref)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.store.dir, 0o700); err != nil { // it may have been removed
		return p.store.diskError(err)
	}
	if err := p.store.checkWant(trivet.BlobRef{Digest: ref.Digest, Chunks: ref.Chunks}); err != nil {
		return err
	}
	f := Fetcher{Client: p.cfg.Client, StallTimeout: p.cfg.StallTimeout, Pause: p.cfg.Pause, Log: p.cfg.Log}
	from, err := f.source(urls, ref)
	if err != nil {
		return err
	}
	if from.chunks == nil || ref.Bytes > p.store.opts.MaxBytes {
		return fmt.Errorf("%w: %d bytes, chunk table %q", trivet.ErrInvalid, ref.Bytes, ref.Chunks)
	}
	defer from.close()
	from.timeout = p.cfg.Timeout
	table, err := from.table(l.ctx)
	if err != nil {
		return err
	}
	t := &pullWriter{puller: p, pull: l, from: from, table: table}
	if err := t.open(ref); err != nil {
		return p.store.diskError(err)
	}
	err = t.run(ref)
	if err != nil {
		err = errors.Join(p.store.diskError(err), t.file.Close())
	}
	if errors.Is(err, errOtherBlob) || isFull(err) || isFaulty(err) {
		err = errors.Join(err, os.Remove(t.file.Name()))
	}
	return err
}

// open opens the file of an earlier pull, or a new one where there is none that the disk can read.
func (t *pullWriter) open(ref trivet.BlobRef) (err error) {
	for try := 0; ; try++ {
		if t.file, err = t.puller.store.openPull(t.pull.digest, ref.Bytes); err != nil {
			return err
		}
		t.whole, t.hashed = sha256.New(), 0
		if t.have, err = t.resume(ref); err == nil {
			return nil
		}
		err = errors.Join(err, t.file.Close())
		if !isFaulty(err) || try > 0 {
			return err
		}
		t.puller.store.noteFault(err)
		if err := os.Remove(t.file.Name()); err != nil {
			return err
		}
	}
}

// errOtherBlob: every chunk matches the chunk table, but the table is of another blob.
var errOtherBlob = fmt.Errorf("%w: the data is another blob", trivet.ErrInvalid)

// openPull opens the file of an earlier pull, or a new one.
func (s *Store) openPull(d Digest, size int64) (*os.File, error) {
	f, err := os.OpenFile(s.path(d)+pullSuffix, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	fi, err := f.Stat()
	if err == nil && fi.Size() != size {
		err = cmp.Or(f.Truncate(0), f.Truncate(size))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pullWriter fetches the chunks of a pull and writes them to its file.
type pullWriter struct {
	puller *Puller
	pull   *pull
	file   *os.File
	from   *source
	table  chunkTable
	whole  hash.Hash // of the first t.hashed chunks
	hashed int64
	have   []bool // the chunks that the file had when it was opened
	grows  bool   // the file is larger at the end: else a damaged copy is repaired in its place
}

type fetched struct {
	i int64
	b []byte
}

// run fetches chunks until none is missing. Each is written and hashed while the next one is fetched.
func (t *pullWriter) run(ref trivet.BlobRef) error {
	t.pull.begin(ref, t.table, t.have)
	if err := t.checkSpace(ref); err != nil {
		return err
	}
	full, free := make(chan fetched, 1), make(chan []byte, 2)
	free <- make([]byte, min(ChunkBytes, ref.Bytes))
	free <- make([]byte, min(ChunkBytes, ref.Bytes))
	var writing sync.WaitGroup
	var failed error
	ctx, stop := context.WithCancelCause(t.pull.ctx)
	defer stop(nil)
	writing.Go(func() {
		for c := range full {
			if failed == nil {
				if failed = t.put(c.i, c.b); failed != nil {
					stop(failed)
				}
			}
			free <- c.b[:cap(c.b)]
		}
	})
	err := t.fetch(ctx, ref, full, free)
	close(full)
	writing.Wait()
	if err = cmp.Or(failed, err); err != nil {
		return err
	}
	return t.finish(ref)
}

func (t *pullWriter) fetch(ctx context.Context, ref trivet.BlobRef, full chan<- fetched, free <-chan []byte) error {
	for {
		b := <-free
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		i, ok := t.pull.next()
		if !ok {
			return nil
		}
		b = b[:chunkLen(i, ref.Bytes)]
		if err := t.from.chunk(ctx, i, b, t.table); err != nil {
			return err
		}
		t.puller.cfg.Metrics.bytes.Add(float64(len(b)))
		full <- fetched{i, b}
	}
}

// checkSpace returns an error where the rest of the file has no space.
func (t *pullWriter) checkSpace(ref trivet.BlobRef) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(t.file.Fd()), &st); err != nil {
		return err
	}
	rest := ref.Bytes - st.Blocks*512
	if t.grows = rest > 0; !t.grows {
		return nil
	}
	return t.puller.store.checkSpace(rest)
}

// put writes a chunk and makes it available to readers.
func (t *pullWriter) put(i int64, b []byte) error {
	if t.grows && i%(checkEvery/ChunkBytes) == 0 {
		if err := t.puller.store.checkSpace(int64(len(b))); err != nil {
			return err
		}
	}
	if _, err := t.file.WriteAt(b, i*ChunkBytes); err != nil {
		return err
	}
	// Start the writeback now, so that the sync at the end is short. That sync reports errors.
	_ = unix.SyncFileRange(int(t.file.Fd()), i*ChunkBytes, int64(len(b)), unix.SYNC_FILE_RANGE_WRITE)
	t.pull.setHave(i)
	if i == t.hashed {
		t.whole.Write(b)
		t.hashed++
	}
	return nil
}

// resume returns which chunks of an earlier pull are complete and valid. Holes are not read.
func (t *pullWriter) resume(ref trivet.BlobRef) (have []bool, err error) {
	have = make([]bool, chunksOf(ref.Bytes))
	b := make([]byte, min(ChunkBytes, ref.Bytes))
	for i := int64(0); i < int64(len(have)); i++ {
		data, err := unix.Seek(int(t.file.Fd()), i*ChunkBytes, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only a hole is left
		}
		if err == nil {
			i = max(i, data/ChunkBytes)
			b = b[:chunkLen(i, ref.Bytes)]
			_, err = t.file.ReadAt(b, i*ChunkBytes)
		}
		if err = cmp.Or(err, context.Cause(t.pull.ctx)); err != nil {
			return nil, err
		}
		have[i] = t.table.check(i, b) == nil
		if have[i] && i == t.hashed {
			t.whole.Write(b)
			t.hashed++
		}
	}
	return have, nil
}

// finish hashes the chunks that were fetched out of order, checks the digest, and adds the blob to the store.
func (t *pullWriter) finish(ref trivet.BlobRef) error {
	rest := io.NewSectionReader(t.file, t.hashed*ChunkBytes, max(0, ref.Bytes-t.hashed*ChunkBytes))
	b := make([]byte, pieceBytes)
	for {
		n, err := rest.Read(b)
		t.whole.Write(b[:n])
		if err == io.EOF {
			break
		}
		if err = cmp.Or(err, context.Cause(t.pull.ctx)); err != nil {
			return err
		}
	}
	if got := Digest(t.whole.Sum(nil)); got != t.pull.digest {
		return fmt.Errorf("%w: its digest is %s", errOtherBlob, got)
	}
	return t.puller.store.add(t.file, t.pull.digest, t.table)
}
