package trivet

import (
	"fmt"
	"regexp"
	"slices"
)

// Image is an operating system's disk image or file tree.
type Image struct {
	Meta
	Spec   ImageSpec    `json:"spec"`
	Status SharedStatus `json:"status,omitzero"`
}

// ImageSpec refers to the image's content and its format.
type ImageSpec struct {
	Blob        BlobRef `json:"blob"`
	Format      string  `json:"format"`                // "raw", "tar" or "oci" (a tar of an OCI layout)
	Compression string  `json:"compression,omitempty"` // "", "zstd", "gzip" or "xz"
	RawBytes    int64   `json:"rawBytes,omitempty"`    // decompressed size, 0 if unknown
	Arch        string  `json:"arch,omitempty"`        // "amd64" or "arm64"; empty: any
}

// BlobRef identifies content by digest, so that a receiver can verify it, as a whole and in chunks (see
// internal/blob).
type BlobRef struct {
	Digest string `json:"digest"` // "sha256:" and hex
	Bytes  int64  `json:"bytes"`  // size
	// Chunks is the digest of the list of chunk digests.
	Chunks string `json:"chunks,omitempty"`
}

// Platform is a kernel and initramfs that machines netboot.
type Platform struct {
	Meta
	Spec   PlatformSpec `json:"spec"`
	Status SharedStatus `json:"status,omitzero"`
}

// PlatformSpec refers to the files of a platform.
type PlatformSpec struct {
	Arch    string   `json:"arch"`              // "amd64" or "arm64"
	Version string   `json:"version,omitempty"` // of kernel and trivet, for display
	Kernel  BlobRef  `json:"kernel"`
	Initrd  BlobRef  `json:"initrd"`
	Args    []string `json:"args,omitempty"` // kernel arguments for every machine
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (b BlobRef) validate(p *problems, field string) {
	if !digestForm.MatchString(b.Digest) {
		p.add(field+".digest", "%q must be sha256: and 64 hex digits", b.Digest)
	}
	if b.Bytes < 0 {
		p.add(field+".bytes", "is negative")
	}
	if b.Chunks != "" && !digestForm.MatchString(b.Chunks) {
		p.add(field+".chunks", "%q must be sha256: and 64 hex digits", b.Chunks)
	}
}

// Validate checks an image by itself.
func (i *Image) Validate() error {
	var p problems
	p.name(i.Name)
	i.Spec.Blob.validate(&p, "spec.blob")
	p.oneOf("spec.format", i.Spec.Format, "raw", "tar", "oci")
	p.oneOf("spec.compression", i.Spec.Compression, "", "zstd", "gzip", "xz")
	p.oneOf("spec.arch", i.Spec.Arch, "", "amd64", "arm64")
	if i.Spec.RawBytes < 0 {
		p.add("spec.rawBytes", "is negative")
	}
	return p.err()
}

// Validate checks a platform by itself.
func (l *Platform) Validate() error {
	var p problems
	p.name(l.Name)
	p.oneOf("spec.arch", l.Spec.Arch, "amd64", "arm64")
	l.Spec.Kernel.validate(&p, "spec.kernel")
	l.Spec.Initrd.validate(&p, "spec.initrd")
	for i, arg := range l.Spec.Args {
		if arg == "" || slices.ContainsFunc([]rune(arg),
			func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' }) {
			p.add(fmt.Sprintf("spec.args[%d]", i), "must be one word without quotes")
		}
	}
	return p.err()
}
