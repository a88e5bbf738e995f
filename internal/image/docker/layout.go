package docker

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/trivet-project/trivet"
)

// Layout returns the image as a tar of an OCI layout, the same for the same archive. It reads all layers once for their
// digests; the tar reads them again. Layers are stored as they are. A layer with another digest than the image names is
// [trivet.ErrInvalid].
func (a *Archive) Layout() (io.Reader, error) {
	o := output{}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	for i, layer := range a.layers {
		d, err := describe(layer, a.diffIDs[i])
		if err != nil {
			return nil, fmt.Errorf("docker archive: layer %d: %w", i+1, err)
		}
		manifest.Layers = append(manifest.Layers, d)
		o.add(blobName(d), layer)
	}
	image, err := o.addBlobs(a.config, &manifest)
	if err != nil {
		return nil, err
	}
	image.Platform = a.platform
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{image}})
	if err != nil {
		return nil, err
	}
	o.add("index.json", section(index))
	o.add("oci-layout", section([]byte(`{"imageLayoutVersion":"1.0.0"}`)))
	return o.tar()
}

// describe reads a layer for its digest. Only that of an uncompressed one can be compared.
func describe(layer *io.SectionReader, diffID v1.Hash) (d v1.Descriptor, err error) {
	d = v1.Descriptor{MediaType: types.OCIUncompressedLayer, Size: layer.Size()}
	var magic [4]byte
	if _, err := layer.ReadAt(magic[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return d, err
	}
	switch {
	case bytes.HasPrefix(magic[:], []byte{0x1f, 0x8b}): // RFC 1952, section 2.3.1
		d.MediaType = types.OCILayer
	case bytes.Equal(magic[:], []byte{0x28, 0xb5, 0x2f, 0xfd}): // RFC 8878, section 3.1.1
		d.MediaType = types.OCILayerZStd
	}
	var n int64
	d.Digest, n, err = v1.SHA256(io.NewSectionReader(layer, 0, layer.Size()))
	switch {
	case err != nil:
		return d, err
	case n != d.Size:
		return d, fmt.Errorf("%w: it is cut off", trivet.ErrInvalid)
	case d.MediaType == types.OCIUncompressedLayer && d.Digest != diffID:
		return d, fmt.Errorf("%w: it is damaged: its digest is %v, the image names %v", trivet.ErrInvalid, d.Digest,
			diffID)
	}
	return d, nil
}

// output is the files of a layout, in their order.
type output struct{ files []file }

type file struct {
	name    string
	content *io.SectionReader
}

// add adds a file, once.
func (o *output) add(name string, content *io.SectionReader) {
	for _, f := range o.files {
		if f.name == name {
			return
		}
	}
	o.files = append(o.files, file{name, content})
}

// addBlobs adds the image's configuration and its manifest, and returns the descriptor of the manifest.
func (o *output) addBlobs(config []byte, manifest *v1.Manifest) (d v1.Descriptor, err error) {
	if manifest.Config, err = o.addBlob(types.OCIConfigJSON, config); err != nil {
		return d, err
	}
	b, err := json.Marshal(manifest)
	if err != nil {
		return d, err
	}
	return o.addBlob(types.OCIManifestSchema1, b)
}

func (o *output) addBlob(kind types.MediaType, content []byte) (d v1.Descriptor, err error) {
	d = v1.Descriptor{MediaType: kind, Size: int64(len(content))}
	d.Digest, _, err = v1.SHA256(bytes.NewReader(content))
	o.add(blobName(d), section(content))
	return d, err
}

func blobName(d v1.Descriptor) string { return "blobs/" + d.Digest.Algorithm + "/" + d.Digest.Hex }

func section(b []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))
}

// block is the size of a tar's blocks, in bytes.
const block = 512

// tar returns the files as a tar. Its format has no limit for the size of a file.
func (o *output) tar() (io.Reader, error) {
	var parts []io.Reader
	for _, f := range o.files {
		var header bytes.Buffer
		err := tar.NewWriter(&header).WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: f.content.Size(),
			Typeflag: tar.TypeReg, Format: tar.FormatGNU})
		if err != nil {
			return nil, err
		}
		padding := make([]byte, -f.content.Size()&(block-1))
		parts = append(parts, &header, f.content, bytes.NewReader(padding))
	}
	end := make([]byte, 2*block) // IEEE Std 1003.1, "ustar Interchange Format"
	return io.MultiReader(append(parts, bytes.NewReader(end))...), nil
}
