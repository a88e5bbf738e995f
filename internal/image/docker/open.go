// Package docker reads the archives of container images that docker save wrote before Docker 25, and podman save writes
// by default, as OCI layouts. Source: Docker image specification v1.2, "Combined Image JSON + Filesystem Changeset
// Format"; OCI image specification v1.1.
package docker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trivet-project/trivet"
)

// Bounds of an archive. An image of the largest registries has some 100 layers; older programs write three files for
// each.
const (
	maxFiles    = 10_000
	maxLayers   = 1000
	maxManifest = 1 << 20
	maxConfig   = 4 << 20
)

// An Archive is an image in an archive. All of it but its layers is in memory.
type Archive struct {
	config   []byte
	platform *v1.Platform
	diffIDs  []v1.Hash // digests of the uncompressed layers
	layers   []*io.SectionReader
}

// Open reads what an archive contains; its layers are not read. An archive that has not exactly one image, or is
// damaged, is [trivet.ErrInvalid].
func Open(r io.ReaderAt, size int64) (*Archive, error) {
	files, err := list(io.NewSectionReader(r, 0, size))
	if err != nil {
		return nil, fmt.Errorf("docker archive: %w", err)
	}
	a, err := files.image()
	if err != nil {
		return nil, fmt.Errorf("docker archive: %w", err)
	}
	return a, nil
}

// files are the contents of an archive's files, and its links, by name.
type files struct {
	content map[string]*io.SectionReader
	links   map[string]string
}

// list finds the files in an archive.
func list(archive *io.SectionReader) (*files, error) {
	f := &files{content: map[string]*io.SectionReader{}, links: map[string]string{}}
	for t := tar.NewReader(archive); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: it is cut off or damaged: %w", trivet.ErrInvalid, err)
		}
		if len(f.content)+len(f.links) >= maxFiles {
			return nil, fmt.Errorf("%w: it has more than %d files", trivet.ErrInvalid, maxFiles)
		}
		name := path.Clean("/" + h.Name)[1:]
		switch h.Typeflag {
		case tar.TypeReg:
			start, err := archive.Seek(0, io.SeekCurrent) // the reader reads the blocks of headers only
			if err != nil {
				return nil, err
			}
			f.content[name] = io.NewSectionReader(archive, start, h.Size)
		case tar.TypeSymlink:
			f.links[name] = path.Join(path.Dir("/"+name), h.Linkname)[1:]
		}
	}
}

// open returns the content of a file. Docker writes a layer that occurs twice as a link.
func (f *files) open(name string) (*io.SectionReader, error) {
	name = path.Clean("/" + name)[1:]
	if to, ok := f.links[name]; ok {
		name = to
	}
	if c, ok := f.content[name]; ok {
		return io.NewSectionReader(c, 0, c.Size()), nil
	}
	return nil, fmt.Errorf("%w: it lacks the file %.200q", trivet.ErrInvalid, name)
}

// read returns a small file.
func (f *files) read(name string, limit int64) ([]byte, error) {
	content, err := f.open(name)
	if err != nil {
		return nil, err
	}
	if content.Size() > limit {
		return nil, fmt.Errorf("%w: %.200q has %d bytes; at most %d", trivet.ErrInvalid, name, content.Size(), limit)
	}
	b := make([]byte, content.Size())
	if _, err := io.ReadFull(content, b); err != nil {
		return nil, fmt.Errorf("%w: it is cut off: %w", trivet.ErrInvalid, err)
	}
	return b, nil
}

// image returns the only image of an archive.
func (f *files) image() (*Archive, error) {
	image, err := f.manifest()
	if err != nil {
		return nil, err
	}
	a := &Archive{}
	if a.config, err = f.read(image.Config, maxConfig); err != nil {
		return nil, err
	}
	config, err := v1.ParseConfigFile(bytes.NewReader(a.config))
	if err != nil {
		return nil, fmt.Errorf("%w: %.200q: %w", trivet.ErrInvalid, image.Config, err)
	}
	a.platform, a.diffIDs = config.Platform(), config.RootFS.DiffIDs
	if len(image.Layers) != len(a.diffIDs) || len(a.diffIDs) > maxLayers {
		return nil, fmt.Errorf("%w: it has %d layers, and the digests of %d; at most %d", trivet.ErrInvalid,
			len(image.Layers), len(a.diffIDs), maxLayers)
	}
	for _, name := range image.Layers {
		layer, err := f.open(name)
		if err != nil {
			return nil, err
		}
		a.layers = append(a.layers, layer)
	}
	return a, nil
}

// manifest returns the description of the only image.
func (f *files) manifest() (image tarball.Descriptor, err error) {
	b, err := f.read("manifest.json", maxManifest)
	if err != nil {
		return image, err
	}
	var all tarball.Manifest
	if err := json.Unmarshal(b, &all); err != nil {
		return image, fmt.Errorf("%w: manifest.json: %w", trivet.ErrInvalid, err)
	}
	if len(all) != 1 {
		return image, &trivet.Error{Op: "read image", Err: fmt.Errorf("%w: it has %d images", trivet.ErrInvalid,
			len(all)), Hint: "save one image: docker save NAME:TAG -o image.tar"}
	}
	return all[0], nil
}
