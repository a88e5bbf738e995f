package oci

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

// maxLayers bounds an image.
const maxLayers = 256

// MaxEntries is a limit of files for images and archives of any use.
const MaxEntries = 2 << 20

// Unpack unpacks an image's layers in their order into a directory, which must be empty. A layer's content is checked
// against the digest that the image's configuration has for it. It fails with [ErrBomb] above the space.
func Unpack(ctx context.Context, img v1.Image, dir string, space Space, progress func(done int64)) error {
	manifest, err := img.Manifest()
	if err != nil {
		return fmt.Errorf("%w: manifest of the image: %w", trivet.ErrInvalid, err)
	}
	config, err := img.ConfigName()
	if err != nil {
		return fmt.Errorf("configuration of the image: %w", err)
	}
	if want := manifest.Config.Digest; config != want {
		return fmt.Errorf("%w: the image's configuration has the digest %s, not %s", trivet.ErrInvalid, config, want)
	}
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("layers of the image: %w", err)
	}
	if len(layers) > maxLayers {
		return fmt.Errorf("%w: the image has %d layers; at most %d", trivet.ErrInvalid, len(layers), maxLayers)
	}
	tree, err := rootfs.Open(dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	var done int64
	for i, l := range layers {
		err := unpackLayer(ctx, l, tree, &space, func(n int64) { done += n; progress(done) })
		if err != nil {
			return fmt.Errorf("unpack layer %d of %d: %w", i+1, len(layers), err)
		}
	}
	return nil
}

func unpackLayer(ctx context.Context, l v1.Layer, tree *rootfs.Root, space *Space,
	progress func(int64)) (err error) {
	want, err := l.DiffID()
	if err != nil {
		return err
	}
	r, err := l.Uncompressed()
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha256.New()
	counted := &counter{ctx: ctx, r: io.TeeReader(r, sum), progress: progress}
	if err := untar(counted, layer{tree, space, map[string]bool{}}, space); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, counted); err != nil { // what follows the archive's end is part of the digest
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.Hex {
		return fmt.Errorf("%w: its digest is sha256:%s, not %s", trivet.ErrInvalid, got, want)
	}
	return nil
}

// counter reports the bytes read and stops when its context ends.
type counter struct {
	ctx      context.Context
	r        io.Reader
	progress func(int64)
}

func (c *counter) Read(b []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.r.Read(b)
	c.progress(int64(n))
	return n, err
}

// Untar unpacks an archive that is not a layer: whiteout names are ordinary files. It goes into a
// directory of the tree at dir, which is created, and no link of the tree or the archive leads out of that tree. It
// fails with [ErrBomb] above the space.
func Untar(r io.Reader, dir, into string, space Space) error {
	tree, err := rootfs.Open(dir)
	if err != nil {
		return err
	}
	defer tree.Close()
	return untar(r, plain{tree, &space, into}, &space)
}

// target applies one entry of an archive.
type target interface {
	entry(h *tar.Header, content io.Reader) error
}

func untar(r io.Reader, to target, space *Space) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, tar.ErrHeader):
			return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		case err != nil:
			return err
		}
		if err := space.take(1, entryBytes); err != nil {
			return err
		}
		if err := to.entry(h, t); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}
