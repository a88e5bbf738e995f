package trivet

import (
	"fmt"
	"regexp"
	"slices"
	"time"
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
	Spec   PlatformSpec   `json:"spec"`
	Status PlatformStatus `json:"status,omitzero"`
}

// PlatformSpec refers to the files of a platform.
type PlatformSpec struct {
	Arch    string   `json:"arch"`              // "amd64" or "arm64"
	Version string   `json:"version,omitempty"` // of kernel and trivet, for display
	Kernel  BlobRef  `json:"kernel"`
	Initrd  BlobRef  `json:"initrd"`         // as it was imported; see [PlatformStatus.Upgrade]
	Args    []string `json:"args,omitempty"` // kernel arguments for every machine
	// Agent is the part of the initramfs that has Trivet's program. A platform with it follows upgrades of the heads.
	// trivet platform import takes it from what trivet platform build has written.
	Agent *PlatformAgent `json:"agent,omitempty"`
	// Back is the number of an upgrade of the heads whose program the platform is not to have: machines netboot the
	// initramfs from before it. trivet platform rollback sets it.
	Back int64 `json:"back,omitempty"`
}

// PlatformAgent is the last part of an initramfs: Trivet's program, which is the first process of the installer OS.
type PlatformAgent struct {
	// Base is the number of bytes of the initramfs before it.
	Base int64 `json:"base"`
	// Program is the digest of the program.
	Program string `json:"program"`
	// Version is that of the program, as it prints it; empty: unknown.
	Version string `json:"version,omitempty"`
	// Release is what the program understands; empty: unknown.
	Release Release `json:"release,omitempty"`
}

// PlatformStatus is the observed state of a platform.
type PlatformStatus struct {
	// Failures are machines whose agent did not start with it, one after the other. It is empty once one has started.
	Failures *SharedFailures `json:"failures,omitempty"`
	// Upgrade is how it follows upgrades of the heads.
	Upgrade *PlatformUpgrade `json:"upgrade,omitempty"`
}

// PlatformUpgrade is how a platform follows upgrades of the heads.
type PlatformUpgrade struct {
	// Run is the last upgrade that is settled for it: it has the program, or is not to get it. See [UpgradeSpec.Run].
	Run int64 `json:"run,omitempty"`
	// Tried is the upgrade whose program it could not get yet, which is tried again.
	Tried int64 `json:"tried,omitempty"`
	// Problem is why it does not have the program of the upgrade, or not yet.
	Problem string `json:"problem,omitempty"`
	// Imported is the digest of the initramfs that the rest is about. Once another one is imported, the rest is void.
	Imported string `json:"imported,omitempty"`
	// Initrd is what machines netboot instead of the imported initramfs.
	Initrd *PlatformInitrd `json:"initrd,omitempty"`
	// Former is what they netbooted before; none after they went back to it.
	Former *PlatformInitrd `json:"former,omitempty"`
	// Changed is when machines got Initrd.
	Changed time.Time `json:"changed,omitzero"`
	// Proven is when the agent of a machine first started with Initrd.
	Proven time.Time `json:"proven,omitzero"`
}

// PlatformInitrd is an initramfs whose program is known.
type PlatformInitrd struct {
	Blob  BlobRef       `json:"blob"`
	Agent PlatformAgent `json:"agent"`
}

// Followed returns how machines follow upgrades of the heads; nil: they netboot what was imported.
func (l *Platform) Followed() *PlatformUpgrade {
	if u := l.Status.Upgrade; u != nil && u.Initrd != nil && u.Imported == l.Spec.Initrd.Digest {
		return u
	}
	return nil
}

// UpgradeProblem returns why the platform does not have the program of the last upgrade; empty: it has, or there was
// none.
func (l *Platform) UpgradeProblem() string {
	if u := l.Status.Upgrade; u != nil && u.Imported == l.Spec.Initrd.Digest {
		return u.Problem
	}
	return ""
}

// Initrd returns the initramfs that machines netboot, and its agent; nil: it is not known.
func (l *Platform) Initrd() (BlobRef, *PlatformAgent) {
	if u := l.Followed(); u != nil {
		return u.Initrd.Blob, &u.Initrd.Agent
	}
	return l.Spec.Initrd, l.Spec.Agent
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
	if a := l.Spec.Agent; a != nil {
		if a.Base <= 0 || a.Base >= l.Spec.Initrd.Bytes {
			p.add("spec.agent.base", "is %d; must be within the %d bytes of spec.initrd", a.Base, l.Spec.Initrd.Bytes)
		}
		if !digestForm.MatchString(a.Program) {
			p.add("spec.agent.program", "%q must be sha256: and 64 hex digits", a.Program)
		}
		p.bytes("spec.agent.version", a.Version, maxVersion)
		p.bytes("spec.agent.release", string(a.Release), maxVersion)
	}
	if l.Spec.Back < 0 {
		p.add("spec.back", "is negative")
	}
	for i, arg := range l.Spec.Args {
		if arg == "" || slices.ContainsFunc([]rune(arg),
			func(r rune) bool { return r <= ' ' || r == '"' || r == '\\' }) {
			p.add(fmt.Sprintf("spec.args[%d]", i), "must be one word without quotes")
		}
	}
	return p.err()
}
