package blob

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/test/faultfs"
)

// openOn opens a store on a disk that may fail.
func openOn(t *testing.T, disk *faultfs.FS, opts Options) *Store {
	t.Helper()
	s, err := Open(filepath.Join(disk.Dir(), "blobs"), opts)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A blob that the disk cannot read is damaged, whether it is served or verified. It is not served, and repaired by a new
// file once another head has a copy: until then what can be read of it stays.
func TestUnreadableBlob(t *testing.T) {
	for name, read := range map[string]func(t *testing.T, s *Store, ref trivet.BlobRef) error{
		"served": func(t *testing.T, s *Store, ref trivet.BlobRef) error {
			_, got, err := get(t, serve(t, s, nil)+"/blob/"+ref.Digest, "")
			if len(got) > ChunkBytes {
				t.Errorf("%d bytes were served", len(got))
			}
			return err
		},
		"verified": func(t *testing.T, s *Store, ref trivet.BlobRef) error {
			return s.Verify(t.Context(), digestOf(t, ref), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var faults, damaged atomic.Int32
			disk := faultfs.New(t)
			bad := openOn(t, disk, Options{Fault: func(error) { faults.Add(1) },
				Damaged: func(Digest, error) { damaged.Add(1) }})
			good, content := open(t, Options{}), noise(3*ChunkBytes)
			ref := put(t, good, content)
			put(t, bad, content)
			before, err := os.Stat(bad.path(digestOf(t, ref)))
			must(t, err)
			disk.Set(faultfs.Faults{ReadError: syscall.EIO, Match: digestOf(t, ref).hex() + "*",
				From: ChunkBytes + 9, To: ChunkBytes + 10})
			if read(t, bad, ref) == nil || bad.Has(digestOf(t, ref)) || faults.Load() == 0 ||
				damaged.Load() != 1 {
				t.Errorf("it is not found: the store has it: %v; %d faults, %d damaged", bad.Has(digestOf(t, ref)),
					faults.Load(), damaged.Load())
			}
			if _, err := os.Stat(bad.path(digestOf(t, ref)) + pullSuffix); err != nil {
				t.Error("without another copy, what can be read is gone:", err)
			}
			must(t, newTestPuller(t, bad, serve(t, good, nil)).Pull(t.Context(), ref))
			disk.Set(faultfs.Faults{})
			after, err := os.Stat(bad.path(digestOf(t, ref)))
			if err != nil || os.SameFile(before, after) {
				t.Errorf("it was repaired in its place: %v", err)
			}
			must(t, bad.Verify(t.Context(), digestOf(t, ref), nil))
		})
	}
}

// What a failed sync has not written is not taken for written by the next pull, which would read it from the cache:
// the second holder of an import has it after a loss of power.
func TestPullAfterAFailedSync(t *testing.T) {
	disk := faultfs.New(t)
	s := openOn(t, disk, Options{})
	good, content := open(t, Options{}), noise(2*ChunkBytes+5)
	ref := put(t, good, content)
	p := newTestPuller(t, s, serve(t, good, nil))
	disk.Set(faultfs.Faults{SyncError: syscall.EIO, SyncErrors: 1, Match: "*" + pullSuffix})
	err := p.Pull(t.Context(), ref)
	var hinted *trivet.Error
	if !errors.Is(err, syscall.EIO) || !errors.As(err, &hinted) || hinted.Hint == "" {
		t.Errorf("a pull whose sync fails: %v", err)
	}
	must(t, p.Pull(t.Context(), ref))
	must(t, s.Close())
	must(t, disk.Cut(nil))
	s = openOn(t, disk, Options{})
	if got, err := os.ReadFile(s.path(digestOf(t, ref))); err != nil || !bytes.Equal(got, content) {
		t.Errorf("after a loss of power: %v; the content is right: %v", err, bytes.Equal(got, content))
	}
}

// After a write that the disk has failed, an upload begins only where the disk writes: else it goes to another head.
func TestUploadOnAFailingDisk(t *testing.T) {
	disk := faultfs.New(t)
	s := openOn(t, disk, Options{})
	id, err := s.Begin()
	must(t, err)
	disk.Set(faultfs.Faults{SyncError: syscall.EIO})
	if _, err := s.Append(t.Context(), id, 0, bytes.NewReader(noise(100))); !errors.Is(err, syscall.EIO) {
		t.Errorf("a piece whose sync fails: %v", err)
	}
	if _, err := s.Begin(); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("an upload begins on a disk that fails: %v", err)
	}
	empty(t, s)
	disk.Set(faultfs.Faults{})
	id, err = s.Begin()
	must(t, err)
	_, err = s.Append(t.Context(), id, 0, bytes.NewReader(noise(100)))
	must(t, err)
	ref, err := s.Finish(t.Context(), id, refOf(noise(100)))
	must(t, err)
	must(t, s.Verify(t.Context(), digestOf(t, ref), nil))
}
