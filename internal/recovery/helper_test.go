package recovery_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// site is a cluster with some records, whose backups are made by a head.
type site struct {
	t       *testing.T
	member  *cluster.Member
	keys    *auth.Keys
	keysDir string
	tables  *state.Tables
	source  *recovery.Source
	key     *recovery.Key
	blobs   map[string][]byte

	// broken makes the stream of a backup end after so many bytes, if it is not 0. during is called meanwhile.
	broken int64
	during func()
}

const imageText = "the content of an image"

func newSite(t *testing.T, release trivet.Release) *site {
	t.Helper()
	s := &site{t: t, member: storetest.Member(t), blobs: map[string][]byte{},
		keysDir: filepath.Join(t.TempDir(), "keys")}
	var err error
	if s.keys, err = auth.Init(s.keysDir, "c1"); err != nil {
		t.Fatal(err)
	}
	s.tables = storetest.On(t, s.member, store.Options{Head: "head0", Cipher: s.keys.Values()}, state.New)
	s.source = recovery.NewSource(recovery.SourceConfig{Dir: t.TempDir(), Member: s.member, Tables: s.tables,
		Keys: s.keys, Version: "v0", Head: func() recovery.HeadConfig { return recovery.HeadConfig{Name: "head0"} }})
	recipient := ""
	s.key, recipient = newKey(t, "c1", s.keys.CA.Trust())
	conf := &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}
	conf.Status.ClusterVersion = trivet.CurrentRelease
	s.update(func(tx *store.Tx) error { return s.tables.Sites.In(tx).Put(conf) })
	s.update(func(tx *store.Tx) error {
		conf.Spec.RecoveryKey, conf.Status.ClusterVersion = recipient, release
		return s.tables.Sites.In(tx).Put(conf)
	})
	s.update(func(tx *store.Tx) error {
		return errors.Join(s.tables.Images.In(tx).Put(image("i1", s.blob(imageText))),
			s.tables.Machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Name: "m1"},
				Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: "52:54:00:00:00:01"}}}}),
			s.tables.Events.In(tx).Put(&trivet.Event{Meta: trivet.Meta{Name: trivet.EventName("u1", 0)},
				Spec: trivet.EventSpec{Subject: "machine/m1", SubjectUID: "u1", Reason: trivet.ReasonEnrolled}}))
	})
	return s
}

func (s *site) update(do func(tx *store.Tx) error) {
	s.t.Helper()
	if _, err := s.tables.Store.Update(s.t.Context(), do); err != nil {
		s.t.Fatal(err)
	}
}

// setRecipient makes backups be made for another recovery key.
func (s *site) setRecipient(recipient string) {
	s.t.Helper()
	s.update(func(tx *store.Tx) error {
		conf, err := s.tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		conf.Spec.RecoveryKey = recipient
		return s.tables.Sites.In(tx).Put(conf)
	})
}

// blob stores content and returns the reference to it.
func (s *site) blob(content string) trivet.BlobRef {
	sum := sha256.Sum256([]byte(content))
	ref := trivet.BlobRef{Digest: "sha256:" + hex.EncodeToString(sum[:]), Bytes: int64(len(content))}
	s.blobs[ref.Digest] = []byte(content)
	return ref
}

func image(name string, ref trivet.BlobRef) *trivet.Image {
	return &trivet.Image{Meta: trivet.Meta{Project: "default", Name: name},
		Spec: trivet.ImageSpec{Blob: ref, Format: "raw"}}
}

// newKey returns a recovery key as read from its file, and its public part.
func newKey(t *testing.T, cluster, trust string) (*recovery.Key, string) {
	t.Helper()
	text, recipient, err := recovery.NewKey(cluster, trust, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "recovery.key")
	if err := os.WriteFile(path, []byte(text.Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := recovery.ReadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	return key, recipient
}

// Backup is the head's API: the stream of a backup.
func (s *site) Backup(ctx context.Context, contents bool) (io.ReadCloser, error) {
	b, err := s.source.Begin(ctx, contents, "")
	if err != nil {
		return nil, err
	}
	defer b.Close()
	var file bytes.Buffer
	if _, err := b.WriteTo(&file); err != nil {
		return nil, err
	}
	if int64(file.Len()) != b.Size() {
		s.t.Errorf("a backup has %d bytes, and %d were announced", file.Len(), b.Size())
	}
	if s.during != nil {
		s.during()
	}
	if s.broken > 0 {
		return io.NopCloser(io.LimitReader(&file, s.broken)), nil
	}
	return io.NopCloser(&file), nil
}

// Blob is the head's API, too.
func (s *site) Blob(_ context.Context, digest string) (io.ReadCloser, error) {
	content, ok := s.blobs[digest]
	if !ok {
		return nil, trivet.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// create makes a backup in a directory.
func (s *site) create(dir string, contents bool) (recovery.Created, error) {
	s.t.Helper()
	return recovery.Create(s.t.Context(), at(dir), s, contents, nil)
}

func (s *site) mustCreate(dir string, contents bool) recovery.Created {
	s.t.Helper()
	c, err := s.create(dir, contents)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

// verify verifies a backup, and makes sure that nothing of the restored store is left.
func (s *site) verify(path string, key *recovery.Key) (recovery.Report, error) {
	s.t.Helper()
	temp := s.t.TempDir()
	r, err := recovery.Verify(s.t.Context(), at(path), key, temp, nil)
	if left, _ := os.ReadDir(temp); len(left) > 0 {
		s.t.Errorf("%s is left", left[0].Name())
	}
	return r, err
}

// hintOf returns what an error says to do next.
func hintOf(err error) string {
	var detailed *trivet.Error
	if errors.As(err, &detailed) {
		return detailed.Hint
	}
	return ""
}

func at(path string) recovery.Location { return recovery.Location{Path: path} }
