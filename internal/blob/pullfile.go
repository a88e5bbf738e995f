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

// pullSuffix ends the file of a blob that is pulled; it has holes where chunks are missing. What is in it counts only when
// it agrees with the chunk table, so it needs no other record and no sync before its end.
const pullSuffix = ".pull"

// pull does one pull. What it got stays for the next try, unless the disk is full or what came is not the blob.
func (p *Puller) pull(l *pull) error {
	ref, urls, err := p.cfg.Locate(l.ctx, l.ref)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.store.dir, 0o700); err != nil { // somebody may have taken it away
		return p.store.full(err)
	}
	if err := p.store.wanted(trivet.BlobRef{Digest: ref.Digest, Chunks: ref.Chunks}); err != nil {
		return err
	}
	f := Fetcher{Client: p.cfg.Client, StallTimeout: p.cfg.StallTimeout, Pause: p.cfg.Pause, Log: p.cfg.Log}
	from, err := f.source(urls, ref)
	if err != nil {
		return err
	}
	if from.chunks == nil || ref.Bytes > p.store.opts.MaxBytes {
		return fmt.Errorf("%w: a blob of %d bytes, chunk table %q", trivet.ErrInvalid, ref.Bytes, ref.Chunks)
	}
	defer from.hangUp()
	from.patience = p.cfg.Timeout
	table, err := from.table(l.ctx)
	if err != nil {
		return err
	}
	file, err := p.store.openPull(l.digest, ref.Bytes)
	if err != nil {
		return p.store.full(err)
	}
	t := &taking{puller: p, pull: l, file: file, from: from, table: table, whole: sha256.New()}
	if err = t.run(ref); err != nil {
		err = errors.Join(p.store.full(err), file.Close())
	}
	if errors.Is(err, errNotWhole) || errors.Is(err, errFull) {
		err = errors.Join(err, os.Remove(file.Name()))
	}
	return err
}

// errNotWhole: every chunk is as the table has it, but the table is not of this blob.
var errNotWhole = fmt.Errorf("%w: what came is another blob", trivet.ErrInvalid)

// openPull opens the file that an earlier pull left, or a new one.
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

// taking is a pull that takes chunks in.
type taking struct {
	puller *Puller
	pull   *pull
	file   *os.File
	from   *source
	table  chunkTable
	whole  hash.Hash // of the first hashed chunks
	hashed int64
}

type fetched struct {
	i int64
	b []byte
}

// run takes chunk after chunk until none is missing. While one is written and added to the digest, the next comes.
func (t *taking) run(ref trivet.BlobRef) error {
	have, err := t.resume(ref)
	if err != nil {
		return err
	}
	t.pull.begin(ref, t.table, have)
	if err := t.puller.store.room(ref.Bytes - t.pull.got); err != nil {
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
	err = t.fetch(ctx, ref, full, free)
	close(full)
	writing.Wait()
	if err = cmp.Or(failed, err); err != nil {
		return err
	}
	return t.finish(ref)
}

func (t *taking) fetch(ctx context.Context, ref trivet.BlobRef, full chan<- fetched, free <-chan []byte) error {
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

// put writes a chunk and lets readers have it.
func (t *taking) put(i int64, b []byte) error {
	if i%(checkEvery/ChunkBytes) == 0 {
		if err := t.puller.store.room(int64(len(b))); err != nil {
			return err
		}
	}
	if _, err := t.file.WriteAt(b, i*ChunkBytes); err != nil {
		return err
	}
	// Writing out begins now, so that the sync at the end is short. That it could not begin is told by that sync.
	_ = unix.SyncFileRange(int(t.file.Fd()), i*ChunkBytes, int64(len(b)), unix.SYNC_FILE_RANGE_WRITE)
	t.pull.keep(i)
	if i == t.hashed {
		t.whole.Write(b)
		t.hashed++
	}
	return nil
}

// resume says which chunks an earlier pull has left, whole and good. Only chunks that have data are read.
func (t *taking) resume(ref trivet.BlobRef) (have []bool, err error) {
	have = make([]bool, chunksOf(ref.Bytes))
	b := make([]byte, min(ChunkBytes, ref.Bytes))
	for i := int64(0); i < int64(len(have)); i++ {
		data, err := unix.Seek(int(t.file.Fd()), i*ChunkBytes, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // holes from here on
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

// finish adds to the digest what came out of order, and makes the file the blob.
func (t *taking) finish(ref trivet.BlobRef) error {
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
		return fmt.Errorf("%w, of digest %s", errNotWhole, got)
	}
	return t.puller.store.keep(t.file, t.pull.digest, t.table)
}
