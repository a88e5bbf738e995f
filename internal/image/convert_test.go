package image

import (
	"bytes"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/trivet-project/trivet"
)

// converted returns what is stored of a file, as a machine reads it.
func converted(t *testing.T, file []byte, digest string) ([]byte, *Packed, error) {
	t.Helper()
	info, err := inspectBytes(file)
	must(t, err)
	if !info.Converts() {
		t.Fatalf("%+v is not converted", info)
	}
	f := &File{Source: bytes.NewReader(file), Bytes: int64(len(file)), Info: info}
	if digest != "" {
		f.Digest, err = ParseDigest(digest)
		must(t, err)
	}
	var done int64
	f.Progress = func(n int64) { done = n }
	p := Pack(t.Context(), f.Content)
	t.Cleanup(func() { must(t, p.Close()) })
	packed, err := io.ReadAll(p)
	if err != nil {
		return nil, p, err
	}
	if done != f.Work() {
		t.Errorf("%d of %d bytes are reported", done, f.Work())
	}
	content, err := unpack(Zstd, packed)
	return content, p, err
}

// A docker archive is stored as an OCI layout.
func TestConvertDockerArchive(t *testing.T) {
	file := dockerArchive(t)
	info, err := inspectBytes(file)
	must(t, err)
	f := &File{Source: bytes.NewReader(file), Bytes: int64(len(file)), Info: info}
	content, err := f.Content()
	must(t, err)
	layout, err := io.ReadAll(content)
	must(t, err)
	if got, err := inspectBytes(layout); err != nil || got.Format != OCI || got.Within != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestConvert(t *testing.T) {
	content := disk()[:4<<20+512]
	for name, file := range map[string][]byte{
		"qcow2":            qcow2Of(t, content, "-c"),
		"xz":               pack(t, XZ, content),
		"disk.raw":         tarOf(t, content, ""),
		"disk.raw xz":      pack(t, XZ, tarOf(t, content, "")),
		"disk.raw, sparse": pack(t, XZ, tarOf(t, content, "", "--sparse")),
		"disk.raw in .":    pack(t, Gzip, tarOf(t, content, "", "--transform=s,^,./,")),
	} {
		got, p, err := converted(t, file, "")
		if err != nil || !bytes.Equal(got, content) || p.RawBytes() != int64(len(content)) {
			t.Errorf("%s: %d bytes, %d are counted, %v", name, len(got), p.RawBytes(), err)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	content := disk()[:4<<20+1<<19]
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"two files":    {tarOf(t, content, "other"), `has "other" beside disk.raw`},
		"half of it":   {tarOf(t, content, "")[:3<<20], "cut off"},
		"half a qcow2": {qcow2Of(t, content)[:1<<19], "cut off"},
		"half of xz":   {pack(t, XZ, content)[:1<<18], "cut off"},
	} {
		if _, _, err := converted(t, c.file, ""); !errors.Is(err, trivet.ErrInvalid) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The digest is the one of the file, to its last byte.
func TestConvertVerifies(t *testing.T) {
	for name, file := range map[string][]byte{
		"xz": pack(t, XZ, noise(1<<18)), "disk.raw": tarOf(t, noise(1<<18), ""),
		"disk.raw gzip": pack(t, Gzip, tarOf(t, noise(1<<18), "")),
	} {
		digest := fmt.Sprintf("sha512:%x", sha512.Sum512(file))
		if _, _, err := converted(t, file, digest); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		other := digest[:len(digest)-1] + "0"
		if other == digest {
			other = digest[:len(digest)-1] + "1"
		}
		if _, _, err := converted(t, file, other); !errors.Is(err, trivet.ErrInvalid) ||
			!strings.Contains(err.Error(), "its digest is "+digest) {
			t.Errorf("%s, another digest: %v", name, err)
		}
	}
	for _, text := range []string{"", "sha256:", "md5:" + strings.Repeat("0", 32), "sha256:" + strings.Repeat("g", 64)} {
		if _, err := ParseDigest(text); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// An upload that continues after a broken connection sends the same bytes.
func TestPackedSeeks(t *testing.T) {
	file := qcow2Of(t, disk()[:5<<20])
	_, p, err := converted(t, file, "")
	must(t, err)
	digest := p.Digest()
	_, err = p.Seek(0, io.SeekStart)
	must(t, err)
	whole, err := io.ReadAll(p)
	must(t, err)
	for _, offset := range []int{len(whole) / 2, 0, len(whole) - 1, len(whole), 1} {
		_, err := p.Seek(int64(offset), io.SeekStart)
		must(t, err)
		rest, err := io.ReadAll(p)
		if err != nil || !bytes.Equal(rest, whole[offset:]) || p.Digest() != digest {
			t.Errorf("from %d: %d bytes, digest %s, %v", offset, len(rest), p.Digest(), err)
		}
	}
	if _, err := p.Seek(0, io.SeekEnd); err == nil {
		t.Error("the end of what is not known was found")
	}
	_, err = p.Seek(10, io.SeekStart) // closed by the cleanup, in its middle
	must(t, err)
}

// An error of the source ends the content, and is no defect of the image.
func TestPackedFails(t *testing.T) {
	broken := errors.New("cable pulled")
	p := Pack(t.Context(), func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(noise(9<<20)), iotest.ErrReader(broken))), nil
	})
	if _, err := io.Copy(io.Discard, p); !errors.Is(err, broken) || p.RawBytes() != 0 {
		t.Errorf("%v, %d bytes", err, p.RawBytes())
	}
	must(t, p.Close())
}
