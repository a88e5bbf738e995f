package blob

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/trivet-project/trivet"
)

func TestUploadResumes(t *testing.T) {
	s := open(t, Options{})
	content := noise(2*ChunkBytes + 99)
	want := refOf(content)
	id, err := s.Begin()
	must(t, err)
	broken := errors.New("cable pulled")
	var at int64
	for _, until := range []int{17, ChunkBytes - 1, ChunkBytes + 70_000} {
		r := io.MultiReader(bytes.NewReader(content[at:until]), iotest.ErrReader(broken))
		next, err := s.Append(t.Context(), id, at, r)
		if !errors.Is(err, broken) || next != int64(until) {
			t.Fatalf("at %d: %v", next, err)
		}
		if at, err = s.Offset(t.Context(), id); err != nil || at != next {
			t.Fatalf("offset %d: %v", at, err)
		}
	}
	next, err := s.Append(t.Context(), id, 0, bytes.NewReader(content))
	if !errors.Is(err, trivet.ErrConflict) || next != at {
		t.Errorf("from the beginning: %d, %v", next, err)
	}
	_, err = s.Append(t.Context(), id, at, bytes.NewReader(content[at:]))
	must(t, err)
	if ref, err := s.Finish(t.Context(), id, want); err != nil || ref != want {
		t.Errorf("%+v, %v", ref, err)
	}
	for _, w := range []trivet.BlobRef{want, {}} {
		if ref, err := s.Finish(t.Context(), id, w); err != nil || ref != want {
			t.Errorf("finished again: %+v, %v", ref, err)
		}
	}
	if _, err := s.Finish(t.Context(), id, refOf([]byte("x"))); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("finished again with another reference: %v", err)
	}
	must(t, s.Verify(t.Context(), digestOf(t, want), nil))
	empty(t, s)
}

// An upload accepts one Append at a time.
func TestUploadInUse(t *testing.T) {
	s := open(t, Options{})
	id, err := s.Begin()
	must(t, err)
	r, w := io.Pipe()
	ended := make(chan error)
	go func() {
		_, err := s.Append(t.Context(), id, 0, r)
		ended <- err
	}()
	_, err = w.Write([]byte("first")) // returns when it is read: the Append has begun
	must(t, err)
	if _, err = s.Append(t.Context(), id, 0, bytes.NewReader([]byte("second"))); !errors.Is(err, trivet.ErrConflict) {
		t.Error(err)
	}
	w.Close()
	must(t, <-ended)
	if ref, err := s.Finish(t.Context(), id, trivet.BlobRef{}); err != nil || ref != refOf([]byte("first")) {
		t.Errorf("%+v, %v", ref, err)
	}
}

// An upload resumes after a restart of the head where the last Append ended.
func TestUploadResumesAfterRestart(t *testing.T) {
	content := noise(ChunkBytes + 1000)
	dir := t.TempDir()
	s, err := Open(dir, Options{})
	must(t, err)
	id, err := s.Begin()
	must(t, err)
	_, err = s.Append(t.Context(), id, 0, bytes.NewReader(content[:ChunkBytes-1]))
	must(t, err)
	must(t, s.Close())
	s, err = Open(dir, Options{})
	must(t, err)
	defer s.Close()
	at, err := s.Offset(t.Context(), id)
	if err != nil || at != ChunkBytes-1 {
		t.Fatalf("%d, %v", at, err)
	}
	_, err = s.Append(t.Context(), id, at, bytes.NewReader(content[at:]))
	must(t, err)
	if ref, err := s.Finish(t.Context(), id, refOf(content)); err != nil || ref != refOf(content) {
		t.Errorf("%+v, %v", ref, err)
	}
	empty(t, s)
}

// A client that lost the response may repeat Finish for some time, even after a crash at any point of the first call.
func TestFinishAgain(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{UploadTimeout: time.Hour})
	must(t, err)
	reopen := func() {
		must(t, s.Close())
		s, err = Open(dir, Options{UploadTimeout: time.Hour})
		must(t, err)
	}
	id, err := s.Begin()
	must(t, err)
	content := noise(100)
	_, err = s.Append(t.Context(), id, 0, bytes.NewReader(content[:50]))
	must(t, err)
	must(t, s.recordDone(id, refOf(content).Digest)) // a crash follows
	reopen()
	if _, err := s.Finished(id); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("finished before it is complete: %v", err)
	}
	_, err = s.Append(t.Context(), id, 50, bytes.NewReader(content[50:]))
	must(t, err)
	_, err = s.Finish(t.Context(), id, trivet.BlobRef{})
	must(t, err)
	reopen()
	if ref, err := s.Finish(t.Context(), id, trivet.BlobRef{}); err != nil || ref != refOf(content) {
		t.Errorf("%+v, %v", ref, err)
	}
	for name, text := range map[string]string{"truncated": "sha256:0", "of another blob": Digest{1}.String()} {
		must(t, os.WriteFile(s.donePath(id), []byte(text), 0o600))
		if _, err := s.Finish(t.Context(), id, trivet.BlobRef{}); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	expired := time.Now().Add(-2 * time.Hour)
	must(t, os.Chtimes(s.donePath(id), expired, expired))
	reopen()
	if _, err := os.Stat(s.donePath(id)); !os.IsNotExist(err) {
		t.Errorf("an expired record was kept: %v", err)
	}
	must(t, s.Close())
}

// An upload that is too short can be continued; one with other content is removed.
func TestFinishRefuses(t *testing.T) {
	s := open(t, Options{})
	id, err := s.Begin()
	must(t, err)
	_, err = s.Append(t.Context(), id, 0, bytes.NewReader(make([]byte, 10)))
	must(t, err)
	if _, err := s.Finish(t.Context(), id, trivet.BlobRef{Bytes: 11}); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("too short: %v", err)
	}
	if at, err := s.Append(t.Context(), id, 10, bytes.NewReader(make([]byte, 1))); err != nil || at != 11 {
		t.Errorf("continued to %d: %v", at, err)
	}
	if _, err := s.Finish(t.Context(), id, refOf(noise(11))); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("wrong: %v", err)
	}
	if _, err := s.Offset(t.Context(), id); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("not removed: %v", err)
	}
	empty(t, s)
}

func TestUploadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{MaxUploads: 2, UploadTimeout: time.Minute})
		first, err := s.Begin()
		must(t, err)
		second, err := s.Begin()
		must(t, err)
		if _, err := s.Begin(); !errors.Is(err, trivet.ErrUnavailable) {
			t.Errorf("a third: %v", err)
		}
		time.Sleep(40 * time.Second)
		_, err = s.Append(t.Context(), first, 0, bytes.NewReader(make([]byte, 5)))
		must(t, err)
		time.Sleep(40 * time.Second)
		if at, err := s.Offset(t.Context(), first); err != nil || at != 5 {
			t.Errorf("an active upload: %d, %v", at, err)
		}
		if _, err := s.Offset(t.Context(), second); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("an idle upload: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		empty(t, s)
		third, err := s.Begin()
		must(t, err)
		must(t, s.Abort(third))
		if err := s.Abort(third); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("aborted twice: %v", err)
		}
		empty(t, s)
		_, err = s.Begin()
		must(t, err)
	})
}
