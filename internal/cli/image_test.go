package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/container/oci"
	"github.com/trivet-project/trivet/internal/image"
)

// An image is imported from servers with ranges, without them, and with responses of unknown length.
func TestImportURLs(t *testing.T) {
	h, err := startHead(t.Context(), filepath.Join(t.TempDir(), "head"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	t.Setenv("TRIVET_CONFIG", h.admin)
	dir := t.TempDir()
	raw := filepath.Join(dir, "disk.raw")
	disk := bytes.Repeat([]byte("a file system\x00"), 300<<10)
	disk = disk[:len(disk)/512*512]
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, dir + "/disk.qcow2"},
		{"tar", "-C", dir, "-cJf", dir + "/disk.tar.xz", "disk.raw"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v (apt-get install qemu-utils xz-utils): %v: %s", args, err, out)
		}
	}
	files := http.FileServer(http.Dir(dir))
	for server, handler := range map[string]http.HandlerFunc{
		"ranges": files.ServeHTTP,
		"no ranges": func(w http.ResponseWriter, r *http.Request) {
			b, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
			if err != nil {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Length", fmt.Sprint(len(b)))
			_, _ = w.Write(b)
		},
		"no length": func(w http.ResponseWriter, r *http.Request) {
			b, _ := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(b)
		},
	} {
		s := httptest.NewServer(handler)
		defer s.Close()
		for _, file := range []string{"disk.raw", "disk.qcow2", "disk.tar.xz"} {
			out := importAs(t, 0, s.URL+"/"+file, "i1")
			if spec, got := h.imageContent(t, "i1"); spec.RawBytes != int64(len(disk)) || !bytes.Equal(got, disk) {
				t.Errorf("%s, %s: %d bytes: %s", server, file, len(got), out)
			}
		}
	}
}

// imageContent returns an image as it is on a machine.
func (h *head) imageContent(t *testing.T, name string) (trivet.ImageSpec, []byte) {
	t.Helper()
	c, err := h.client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	img, err := client.Of[trivet.Image](c).Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	blob, err := c.Blob(t.Context(), img.Spec.Blob.Digest)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	content, err := image.Decompress(blob, img.Spec.Compression)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	b, err := io.ReadAll(content)
	if err != nil {
		t.Error(err)
	}
	return img.Spec, b
}

// What exceeds the space for temporary files is refused, and leaves nothing behind.
func TestSpoolIsBounded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	defer func(n int64) { maxSpool = n }(maxSpool)
	maxSpool = 1 << 20
	a := newApp(Env{Out: io.Discard, Err: io.Discard})
	for _, size := range []int64{0, 2 << 20} { // not announced, and announced
		in := &imageFile{name: "standard input", size: size}
		err := a.spool(t.Context(), in, bytes.NewReader(make([]byte, 2<<20)), image.None)
		if !errors.Is(err, trivet.ErrTooLarge) || !strings.Contains(hintOf(err), "set TMPDIR") {
			t.Errorf("%d bytes announced: %v", size, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

// Ctrl-C ends an import whose standard input sends nothing.
func TestInterruptedInput(t *testing.T) {
	silent, _ := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	a := newApp(Env{In: silent, Out: io.Discard, Err: io.Discard})
	if _, err := a.openImage(ctx, "-", &importFlags{name: "i1"}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// The directory of an OCI layout becomes an image that the container action unpacks.
func TestImportLayout(t *testing.T) {
	h, err := startHead(t.Context(), filepath.Join(t.TempDir(), "head"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	t.Setenv("TRIVET_CONFIG", h.admin)
	dir := filepath.Join(t.TempDir(), "layout")
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	img, err := random.Image(10_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	out := importAs(t, 0, dir, "tool")
	if !strings.Contains(out, "converted from a directory to oci") {
		t.Error(out)
	}
	spec, content := h.imageContent(t, "tool")
	unpacked := t.TempDir()
	if err := oci.Untar(bytes.NewReader(content), unpacked, "", oci.OnDisk); err != nil || spec.Format != image.OCI {
		t.Errorf("%+v, %v", spec, err)
	}
	got, err := oci.Layout(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(got); err != nil {
		t.Error(err)
	}
	for flag, says := range map[string]string{
		"--arch=arm64": "", "--format=tar": "is of format oci, not tar",
		"--digest=sha256:" + strings.Repeat("0", 64): "a directory has no digest",
	} {
		if out := importAs(t, min(1, len(says)), dir, "tool", flag); !strings.Contains(out, says) {
			t.Errorf("%s: %s", flag, out)
		}
	}
}

// importAs imports an image, and returns what that prints.
func importAs(t *testing.T, status int, from, name string, flags ...string) string {
	t.Helper()
	var out bytes.Buffer
	root := Root(Env{In: os.Stdin, Out: &out, Err: &out})
	root.SetArgs(append([]string{"image", "import", from, "--name", name, "--replace"}, flags...))
	if got := Execute(t.Context(), root); got != status {
		t.Errorf("status %d, not %d: %s", got, status, &out)
	}
	return out.String()
}
