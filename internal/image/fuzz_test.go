package image

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/trivet-project/trivet"
)

func FuzzInspect(f *testing.F) {
	small := disk()[:100<<10]
	for _, compression := range []string{None, Zstd, Gzip, XZ} {
		f.Add(pack(f, compression, small))
		f.Add(pack(f, compression, archive(f, "blobs/x", "oci-layout")))
	}
	f.Add(pack(f, Zstd, small, "--stream-size=102400"))
	f.Add(qcow2Of(f, small, "-c", "-o", "cluster_size=512"))
	f.Add(pack(f, Gzip, tarOf(f, small[:5000], "")))
	f.Add([]byte("<html>404 Not Found"))
	gpt := make([]byte, 34<<10)
	copy(gpt[512:], "EFI PART")
	gpt[512+72], gpt[512+80], gpt[512+84], gpt[1024], gpt[1024+40] = 2, 128, 128, 1, 9
	f.Add(gpt)
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := inspectBytes(b)
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("not an ErrInvalid: %v", err)
		}
		if err == nil && (info.RawBytes < 0 || info.Format == "") {
			t.Errorf("%+v", info)
		}
	})
}

// FuzzXZGuard: the guard passes its input unchanged, and accepts files of the real program.
func FuzzXZGuard(f *testing.F) {
	f.Add(pack(f, XZ, noise(1000)))
	f.Add(pack(f, XZ, disk()[:200<<10], "--block-size=70000", "--check=crc32"))
	f.Add(append(pack(f, XZ, nil), make([]byte, 8)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := io.ReadAll(newXZGuard(bufio.NewReader(bytes.NewReader(b))))
		if !bytes.HasPrefix(b, got) || err == nil && len(got) != len(b) {
			t.Errorf("%d of %d bytes were passed: %v", len(got), len(b), err)
		}
	})
}
