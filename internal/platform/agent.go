package platform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/u-root/u-root/pkg/cpio"

	"github.com/trivet-project/trivet"
)

const digestPrefix = "sha256:"

// The agent is the last archive of an initramfs, so that it can be replaced without the packages that the base is made
// of.

// WithAgent writes an initramfs to w: the base of another one, which is what it begins with, and a program as the
// agent. It fails with [trivet.ErrInvalid] where the program cannot run there, or where the base is none.
func WithAgent(ctx context.Context, w io.Writer, initrd io.Reader, base int64, program *io.SectionReader,
	arch string) error {
	machine, known := arches[arch]
	if !known {
		return fmt.Errorf("%w: unknown architecture %q; use amd64 or arm64", trivet.ErrInvalid, arch)
	}
	if err := checkProgram("the program", program, machine); err != nil {
		return err
	}
	magic := make([]byte, 4)
	if _, err := io.ReadFull(initrd, magic); err != nil || base < int64(len(magic)) {
		return fmt.Errorf("%w: the initramfs has no base of %d bytes", trivet.ErrInvalid, base)
	}
	compression, err := compressionOf(magic)
	if err != nil {
		return err
	}
	n := &counter{w: w, ctx: ctx}
	if _, err := io.Copy(n, io.LimitReader(io.MultiReader(bytes.NewReader(magic), initrd), base)); err != nil {
		return err
	}
	if n.n != base {
		return fmt.Errorf("%w: the initramfs has %d bytes, and its base %d", trivet.ErrInvalid, n.n, base)
	}
	_, err = writeAgent(ctx, w, program, compression)
	return err
}

// compressionOf returns how the agent is compressed, by the first bytes of the base: what the kernel unpacks.
func compressionOf(magic []byte) (compression, error) {
	switch {
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zstdSmall, nil
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzipBest, nil
	}
	return nil, fmt.Errorf("%w: the initramfs begins with %x, which is neither zstd nor gzip", trivet.ErrInvalid, magic)
}

// sized is a program.
type sized interface {
	io.ReaderAt
	io.Seeker
}

// writeAgent writes the archive of the agent, and returns its size before compression.
func writeAgent(ctx context.Context, w io.Writer, program sized, c compression) (int64, error) {
	size, err := program.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	return files{"init": cpio.Record{ReaderAt: program,
		Info: cpio.Info{Name: "init", Mode: cpio.S_IFREG | 0o755, FileSize: uint64(size)}}}.writeTo(ctx, w, c)
}

// Built describes the files in a directory that [Build] has written. It is the file platform.json.
type Built struct {
	Arch   string `json:"arch"`
	Kernel string `json:"kernel"` // its version
	// Initrd is the digest of initrd.img.
	Initrd string               `json:"initrd"`
	Agent  trivet.PlatformAgent `json:"agent"`
}

const builtFile = "platform.json"

func writeBuilt(dir string, b *Built) error {
	text, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeFile(filepath.Join(dir, builtFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
	return err
}

// maxBuilt bounds the file, in bytes.
const maxBuilt = 64 << 10

// ReadBuilt reads the description of a directory; nil: it has none, as it was written by an earlier release, or by
// other means.
func ReadBuilt(dir string) (*Built, error) {
	f, err := os.Open(filepath.Join(dir, builtFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBuilt))
	if err != nil {
		return nil, err
	}
	var b Built
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", trivet.ErrInvalid, f.Name(), err)
	}
	return &b, nil
}
