package archive_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/archive"
)

func macOf(key string) archive.MAC {
	return func(text string) []byte {
		m := hmac.New(sha256.New, []byte(key))
		m.Write([]byte(text))
		return m.Sum(nil)
	}
}

func partOf(text string) archive.Part {
	sum := sha256.Sum256([]byte(text))
	return archive.Part{Bytes: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}
}

const keysText, storeText = "the sealed keys", "the snapshot of the store"

func manifest() *archive.Manifest {
	return &archive.Manifest{Cluster: "c1", Version: "v0", Release: "0.3.1", Head: "head0",
		Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Revision: 7, Recipient: "age1x",
		Keys: partOf(keysText), Store: partOf(storeText),
		Blobs: []trivet.BlobRef{{Digest: "sha256:" + strings.Repeat("a", 64), Bytes: 3}}}
}

// backup returns a whole file.
func backup(t testing.TB) []byte {
	t.Helper()
	head, err := archive.Header(manifest(), macOf("cluster"))
	if err != nil {
		t.Fatal(err)
	}
	return append(head, keysText+storeText...)
}

// memory is a file in memory.
type memory struct{ *bytes.Reader }

func (m memory) Range(at, n int64) io.Reader { return io.NewSectionReader(m, at, n) }
func (m memory) Close() error                { return nil }

// read reads a file as a verification does.
func read(t testing.TB, content []byte) error {
	t.Helper()
	f, err := archive.Open(memory{bytes.NewReader(content)})
	if err != nil {
		return err
	}
	defer f.Close()
	keys, err := f.KeysPart()
	if err != nil {
		return err
	}
	store, err := io.ReadAll(f.StorePart())
	if err != nil {
		return err
	}
	if string(keys) != keysText || string(store) != storeText {
		t.Errorf("read keys %q, store %q", keys, store)
	}
	return f.Verify(macOf("cluster"))
}

func TestWholeFile(t *testing.T) {
	whole := backup(t)
	if err := read(t, whole); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	m, err := archive.Copy(bytes.NewReader(whole), func(m *archive.Manifest, size int64) (io.Writer, error) {
		if size != int64(len(whole)) || m.Revision != 7 {
			t.Errorf("announced %d bytes at revision %d", size, m.Revision)
		}
		return &out, nil
	})
	if err != nil || !bytes.Equal(out.Bytes(), whole) || m.Cluster != "c1" {
		t.Errorf("copied %d of %d bytes: %v", out.Len(), len(whole), err)
	}
}

// Whichever byte is changed, the file is refused, and no error is taken for another file's.
func TestChangedByte(t *testing.T) {
	whole := backup(t)
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		if err := read(t, changed); !errors.Is(err, trivet.ErrInvalid) {
			t.Fatalf("byte %d (%q) was changed: %v", i, whole[i], err)
		}
	}
}

// Wherever the file ends early, it is refused: in a file, and in a stream.
func TestTruncated(t *testing.T) {
	whole := backup(t)
	for n := range whole {
		want := archive.ErrTruncated
		if n == 0 {
			want = archive.ErrNoBackup
		}
		if err := read(t, whole[:n]); !errors.Is(err, want) {
			t.Fatalf("the first %d bytes: %v", n, err)
		}
		_, err := archive.Copy(bytes.NewReader(whole[:n]),
			func(*archive.Manifest, int64) (io.Writer, error) { return io.Discard, nil })
		if !errors.Is(err, want) {
			t.Fatalf("a stream of the first %d bytes: %v", n, err)
		}
	}
}

func TestRefusedFiles(t *testing.T) {
	whole := string(backup(t))
	bad := func(change func(*archive.Manifest)) string {
		m := manifest()
		change(m)
		head, err := archive.Header(m, macOf("cluster"))
		if err != nil {
			t.Fatal(err)
		}
		return string(head) + keysText + storeText
	}
	for name, c := range map[string]struct {
		content string
		want    error
	}{
		"another file":     {"PK\x03\x04" + whole, archive.ErrNoBackup},
		"a later format":   {strings.Replace(whole, "backup 1", "backup 2", 1), archive.ErrNewer},
		"bytes at the end": {whole + "x", archive.ErrDamaged},
		"another key's":    {strings.Replace(whole, "the sealed keys", "the sealed Keys", 1), archive.ErrDamaged},
		"no cluster":       {bad(func(m *archive.Manifest) { m.Cluster = "" }), archive.ErrDamaged},
		"a path as blob":   {bad(func(m *archive.Manifest) { m.Blobs[0].Digest = "sha256:../../x" }), archive.ErrDamaged},
		"a negative size":  {bad(func(m *archive.Manifest) { m.Store.Bytes = -1 }), archive.ErrDamaged},
		"a huge size":      {bad(func(m *archive.Manifest) { m.Keys.Bytes = 1 << 40 }), archive.ErrDamaged},
	} {
		if err := read(t, []byte(c.content)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A manifest that another party wrote, with all digests right, is refused by its MAC.
func TestForgedManifest(t *testing.T) {
	head, err := archive.Header(manifest(), macOf("attacker"))
	if err != nil {
		t.Fatal(err)
	}
	if err := read(t, append(head, keysText+storeText...)); !errors.Is(err, archive.ErrDamaged) {
		t.Errorf("a forged manifest: %v", err)
	}
}

// FuzzManifest: no input makes the parser panic, or return a manifest that is not valid.
func FuzzManifest(f *testing.F) {
	f.Add(backup(f))
	f.Add([]byte("trivet-backup 1 ffffffff "))
	f.Fuzz(func(t *testing.T, content []byte) {
		m, err := archive.Copy(bytes.NewReader(content), func(m *archive.Manifest, size int64) (io.Writer, error) {
			if size < m.Keys.Bytes+m.Store.Bytes || m.Keys.Bytes < 0 || m.Store.Bytes < 0 {
				t.Errorf("size %d of %+v", size, m)
			}
			return io.Discard, nil
		})
		if err == nil && (m.Cluster == "" || m.Revision < 1) {
			t.Errorf("accepted %+v", m)
		}
	})
}
