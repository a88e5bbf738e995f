package action

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench is a machine, real or simulated, to try actions on.
type bench struct {
	t     testing.TB
	env   *Env
	disk  string // its name in templates
	run   *trivet.Run
	blobs map[string][]byte // by digest
	log   bytes.Buffer
	note  string
	seen  int64 // of the last progress
	mu    sync.Mutex
	wrote chan struct{}
}

func newBench(t testing.TB, host Host, disk string) *bench {
	b := &bench{t: t, disk: disk, blobs: map[string][]byte{}}
	b.env = &Env{Host: host, Dir: t.TempDir(), Firmware: "bios", Fetch: b.fetch}
	b.run = &trivet.Run{Workflow: "w", UID: "0000-uid", Spec: trivet.WorkflowSpec{Machine: "m1"}}
	return b
}

// onLoop is a machine whose disk is a real block device of a size. It requires root.
func onLoop(t testing.TB, size int64) *bench {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", "--partscan", sparse(t, size)).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup (requires root, and apt-get install mount): %v: %s", err, out)
	}
	node := strings.TrimSpace(string(out))
	host := &Machine{Dir: t.TempDir()}
	t.Cleanup(func() {
		must(t, host.sweep())
		if out, err := exec.Command("losetup", "--detach", node).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach: %v: %s", err, out)
		}
		wantNothingLeft(t, host.Dir)
	})
	return newBench(t, host, node)
}

// onFile is a simulated machine of the lab.
func onFile(t testing.TB, size int64) *bench {
	return newBench(t, Files{map[string]string{"/dev/vda": sparse(t, size)}}, "/dev/vda")
}

func sparse(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(path)
	must(t, err)
	must(t, f.Truncate(size))
	must(t, f.Close())
	return path
}

func wantNothingLeft(t testing.TB, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	if strings.Contains(string(mounts), dir) {
		t.Errorf("a mount is left below %s:\n%s", dir, mounts)
	}
}

// add brings an image into the run.
func (b *bench) add(name, format, compression string, content []byte) {
	sum := sha256.Sum256(content)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	b.blobs[digest] = content
	b.run.Spec.Images = append(b.run.Spec.Images, trivet.ImageRef{Name: name, ImageSpec: trivet.ImageSpec{
		Blob: trivet.BlobRef{Digest: digest, Bytes: int64(len(content))}, Format: format, Compression: compression,
	}})
}

func (b *bench) fetch(_ context.Context, _ []string, ref trivet.BlobRef) (io.ReadCloser, error) {
	content, ok := b.blobs[ref.Digest]
	if !ok {
		return nil, fmt.Errorf("%w: blob %s", trivet.ErrNotFound, ref.Digest)
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// try does one attempt; its output is in b.log.
func (b *bench) try(ctx context.Context, use string, with map[string]any) error {
	b.log.Reset()
	b.note = ""
	return b.env.Do(ctx, &Attempt{
		Run: b.run, Action: trivet.Action{Name: "a", Use: use, With: with}, Number: 1, Log: &locked{b: b},
		Progress: func(done, _ int64, _ string) { b.seen = done },
		Note:     func(text string) { b.note = text },
		Blobs:    func() []string { return nil },
	})
}

// locked is the bench's log, which signals each write.
type locked struct{ b *bench }

func (l *locked) Write(p []byte) (int, error) {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if l.b.wrote != nil {
		close(l.b.wrote)
		l.b.wrote = nil
	}
	return l.b.log.Write(p)
}

// killed is an attempt that is cancelled once it has written output.
func (b *bench) killed(use string, with map[string]any) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	wrote, ended := make(chan struct{}), make(chan error, 1)
	b.wrote = wrote
	go func() { ended <- b.try(ctx, use, with) }()
	select {
	case <-wrote:
	case err := <-ended:
		b.t.Fatalf("%s ended before it hung: %v\n%s", use, err, b.log.String())
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		b.t.Errorf("%s ended with %v", use, err)
	}
}

// do is an attempt that must succeed, on the bench's disk.
func (b *bench) do(use string, with map[string]any) {
	b.t.Helper()
	if err := b.try(b.t.Context(), use, b.on(with)); err != nil {
		b.t.Fatalf("%s: %v\n%s", use, err, b.log.String())
	}
}

func (b *bench) on(with map[string]any) map[string]any {
	out := map[string]any{"disk": b.disk}
	for k, v := range with {
		out[k] = v
	}
	return out
}

// fail is an attempt that must fail in a certain way.
func (b *bench) fail(use string, with map[string]any, fault trivet.FailureType, final bool, text string) {
	b.t.Helper()
	err := b.try(b.t.Context(), use, with)
	var f *Failure
	if !errors.As(err, &f) || f.Fault != fault || f.Final != final || !strings.Contains(err.Error(), text) {
		b.t.Errorf("%s %v: %v (%+v)\nwant a failure of the %s, final %v, with %q\n%s", use, with, err, f, fault, final,
			text, b.log.String())
	}
}

// in opens the installed system.
func (b *bench) in(partition int, f func(dir string)) {
	b.t.Helper()
	path, err := b.env.Host.Disk(trivet.DiskHints{Path: b.disk})
	must(b.t, err)
	root, err := b.env.Host.Root(b.t.Context(), path, partition)
	must(b.t, err)
	defer func() { must(b.t, root.Close()) }()
	f(root.Dir)
}

// tool builds the tests' static program once.
var tool = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "tool-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-o", dir+"/tool", "./testdata/tool")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	return os.ReadFile(dir + "/tool")
})
