package image

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/trivet-project/trivet"
)

func TestDecompress(t *testing.T) {
	content := disk()[2<<20 : 5<<20]
	for _, c := range []struct {
		compression string
		flags       []string
	}{
		{None, nil}, {Zstd, nil}, {Zstd, []string{"-19", "--long=27"}}, {Gzip, nil}, {XZ, nil},
		{XZ, []string{"--block-size=1000000", "--check=sha256"}}, {XZ, []string{"-9e", "--check=none"}},
	} {
		packed := pack(t, c.compression, content, c.flags...)
		if got, err := unpack(c.compression, packed); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s %v: %d bytes, %v", c.compression, c.flags, len(got), err)
		}
		if c.compression == None {
			continue
		}
		if got := compressionOf(packed); got != c.compression {
			t.Errorf("%s is detected as %q", c.compression, got)
		}
		twice := append(bytes.Clone(packed), packed...)
		if got, err := unpack(c.compression, twice); err != nil ||
			!bytes.Equal(got, append(bytes.Clone(content), content...)) {
			t.Errorf("%s %v, two in a row: %d bytes, %v", c.compression, c.flags, len(got), err)
		}
	}
}

func TestDecompressRefuses(t *testing.T) {
	content := noise(100 << 10)
	for _, compression := range []string{Zstd, Gzip, XZ} {
		packed := pack(t, compression, content)
		for name, bad := range map[string][]byte{
			"nothing": nil,
			"header":  packed[:5],
			"cut off": packed[:len(packed)/2],
			"end":     packed[:len(packed)-1],
			"damaged": append(append(bytes.Clone(packed[:len(packed)/2]), packed[len(packed)/2]^0xff),
				packed[len(packed)/2+1:]...),
			"trailing": append(bytes.Clone(packed), "what is this?"...),
			"other":    content,
		} {
			if _, err := unpack(compression, bad); !errors.Is(err, trivet.ErrInvalid) {
				t.Errorf("%s, %s: %v", compression, name, err)
			}
		}
	}
	for name, bad := range map[string][]byte{ // more memory than a machine should need for an image
		XZ:   pack(t, XZ, content[:100], "--lzma2=dict=256MiB"),
		Zstd: pack(t, Zstd, content, "--long=30"),
	} {
		if _, err := unpack(name, bad); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s with a large window: %v", name, err)
		}
	}
	if _, err := unpack("brotli", content); !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
}

// An error of the source is not reported as one of the image, at any offset.
func TestDecompressKeepsTheSourcesError(t *testing.T) {
	broken := errors.New("cable pulled")
	for _, compression := range []string{None, Zstd, Gzip, XZ} {
		packed := pack(t, compression, noise(100<<10))
		for _, n := range []int{0, 3, 30, len(packed) / 2, len(packed)} {
			r, err := Decompress(io.MultiReader(bytes.NewReader(packed[:n]), iotest.ErrReader(broken)), compression)
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				must(t, r.Close())
			}
			if !errors.Is(err, broken) || errors.Is(err, trivet.ErrInvalid) {
				t.Errorf("%s after %d bytes: %v", compression, n, err)
			}
		}
	}
}
