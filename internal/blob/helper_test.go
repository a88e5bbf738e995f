package blob

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, opts Options) *Store {
	t.Helper()
	s, err := Open(t.TempDir(), opts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// noise returns content that does not repeat, the same for the same size.
func noise(size int) []byte {
	b := make([]byte, size)
	seed := rand.NewChaCha8([32]byte{byte(size)})
	seed.Read(b)
	return b
}

func put(t testing.TB, s *Store, content []byte) trivet.BlobRef {
	t.Helper()
	ref, err := s.Put(t.Context(), bytes.NewReader(content), trivet.BlobRef{})
	must(t, err)
	return ref
}

func digestOf(t testing.TB, ref trivet.BlobRef) Digest {
	t.Helper()
	d, err := ParseDigest(ref.Digest)
	must(t, err)
	return d
}

// empty fails if a file of an incomplete blob is left.
func empty(t testing.TB, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.dir)
	must(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), doneSuffix) {
			continue
		}
		if _, err := ParseDigest(algorithm + strings.TrimSuffix(e.Name(), tableSuffix)); err != nil {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// serve runs a head's blob server; wrap may inject faults.
func serve(t testing.TB, s *Store, wrap func(http.Handler) http.Handler) (url string) {
	t.Helper()
	h := s.Handler()
	if wrap != nil {
		h = wrap(h)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// refOf computes a reference without the code under test.
func refOf(content []byte) trivet.BlobRef {
	var table []byte
	for rest := content; len(rest) > 0; rest = rest[min(len(rest), ChunkBytes):] {
		sum := sha256.Sum256(rest[:min(len(rest), ChunkBytes)])
		table = append(table, sum[:]...)
	}
	whole, chunks := Digest(sha256.Sum256(content)), Digest(sha256.Sum256(table))
	return trivet.BlobRef{Digest: whole.String(), Bytes: int64(len(content)), Chunks: chunks.String()}
}

func flip(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	b := make([]byte, 1)
	_, err = f.ReadAt(b, at)
	must(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	must(t, err)
}
