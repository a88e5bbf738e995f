package blob

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzParseDigest(f *testing.F) {
	f.Add(refOf(nil).Digest)
	f.Add("sha256:../../../../../../../../etc/passwd0000000000000000000000000000000000")
	f.Add("SHA256:" + strings.Repeat("A", 64))
	f.Fuzz(func(t *testing.T, s string) {
		d, err := ParseDigest(s)
		if err == nil && d.String() != s {
			t.Errorf("%q was parsed as %v", s, d)
		}
		if err != nil && d != (Digest{}) {
			t.Errorf("%q: both a digest and an error", s)
		}
	})
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte{}, int64(0), true)
	f.Add(bytes.Repeat([]byte{7}, 64), int64(ChunkBytes+1), true)
	f.Add(bytes.Repeat([]byte{7}, 64), int64(ChunkBytes+1), false)
	f.Add(make([]byte, 33), int64(1<<62), true)
	f.Fuzz(func(t *testing.T, b []byte, size int64, named bool) {
		size &= 1<<42 - 1
		var want Digest
		if named {
			want = DigestOf(b)
		}
		table, err := parseTable(b, size, want)
		if good := named && int64(len(b)) == 32*((size+ChunkBytes-1)/ChunkBytes); (err == nil) != good {
			t.Fatalf("%d bytes for a blob of %d: %v", len(b), size, err)
		}
		for i := int64(0); err == nil && i < chunksOf(size); i++ {
			if table.check(i, []byte("other")) == nil {
				t.Errorf("chunk %d matches wrong content", i)
			}
		}
	})
}
