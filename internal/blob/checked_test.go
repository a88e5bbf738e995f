package blob

import (
	"bytes"
	"testing"
)

// A damaged chunk is not sent: the response ends before it, and the blob is no longer one of the store.
func TestDamagedBlobIsNotServed(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		most   int64 // bytes that may be received
	}{
		"whole":         {"", ChunkBytes},
		"damaged range": {"bytes=4194304-4194310", 0},
		"two ranges":    {"bytes=0-1,4194304-4194310", ChunkBytes},
	} {
		damaged := make(chan Digest, 10)
		s := open(t, Options{Damaged: func(d Digest, _ error) { damaged <- d }})
		content := noise(3 * ChunkBytes)
		ref := put(t, s, content)
		flip(t, s.path(digestOf(t, ref)), ChunkBytes+100)
		url := serve(t, s, nil) + "/blob/" + ref.Digest
		if _, got, err := get(t, url, "bytes=8388608-8388610"); err != nil || !bytes.Equal(got, content[8388608:8388611]) {
			t.Errorf("%s: a good range: %x, %v", name, got, err)
		}
		_, got, err := get(t, url, c.header)
		if err == nil || int64(len(got)) > c.most || !bytes.Equal(got, content[:len(got)]) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if reported := <-damaged; s.Has(digestOf(t, ref)) || len(damaged) > 0 || reported != digestOf(t, ref) {
			t.Errorf("%s: the store has the blob: %v; reported %v, and %d more", name, s.Has(digestOf(t, ref)),
				reported, len(damaged))
		}
	}
}

// A head whose copy is damaged fetches the damaged chunk from another head, and serves the blob again.
func TestDamagedBlobIsRepaired(t *testing.T) {
	good, bad := open(t, Options{}), open(t, Options{})
	content := noise(3 * ChunkBytes)
	ref := put(t, good, content)
	put(t, bad, content)
	flip(t, bad.path(digestOf(t, ref)), 2*ChunkBytes+5)
	p := newTestPuller(t, bad, serve(t, good, nil))
	url := p.startServer(t, ref)
	for i, want := range []bool{false, true, true} {
		_, got, err := get(t, url, "")
		if same := err == nil && bytes.Equal(got, content); same != want {
			t.Errorf("response %d: %d bytes, %v; want it whole: %v", i, len(got), err, want)
		}
	}
	must(t, p.Pull(t.Context(), ref))
	must(t, bad.Verify(t.Context(), digestOf(t, ref), nil))
}
