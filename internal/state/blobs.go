package state

import (
	"iter"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// BlobsOf returns the blobs that a record refers to, which every full head must hold. A run or an upgrade that
// has ended needs none.
func BlobsOf(r trivet.Record) (refs []trivet.BlobRef) {
	switch r := r.(type) {
	case *trivet.Image:
		refs = append(refs, r.Spec.Blob)
	case *trivet.Platform:
		refs = append(refs, r.Spec.Kernel, r.Spec.Initrd)
		if u := r.Followed(); u != nil {
			refs = append(refs, u.Initrd.Blob)
			if u.Former != nil {
				refs = append(refs, u.Former.Blob)
			}
		}
	case *trivet.Upgrade:
		for i := range r.Spec.Programs {
			if r.NeedsPrograms() {
				refs = append(refs, r.Spec.Programs[i].Blob)
			}
		}
	case *trivet.Workflow:
		for i := range r.Spec.Images {
			if !r.Status.State.Ended() {
				refs = append(refs, r.Spec.Images[i].Blob)
			}
		}
	}
	return refs
}

// BlobUse is a reference to a blob, and the record that has it.
type BlobUse struct {
	Ref  trivet.BlobRef
	Kind trivet.Kind
	Name string // the short name
}

// BlobUses returns all references to blobs: of workflows those of runs that have not ended, which are in index ByBlob.
// One with several blobs may be yielded again.
func (t *Tables) BlobUses() iter.Seq[BlobUse] {
	return func(yield func(BlobUse) bool) {
		of := func(r trivet.Record) bool {
			for _, ref := range BlobsOf(r) {
				if !yield(BlobUse{ref, trivet.KindOf(r), r.Header().ShortName()}) {
					return false
				}
			}
			return true
		}
		for i := range t.Images.AllShared() {
			if !of(i) {
				return
			}
		}
		for p := range t.Platforms.AllShared() {
			if !of(p) {
				return
			}
		}
		for u := range t.Upgrades.AllShared() {
			if !of(u) {
				return
			}
		}
		for w := range t.Workflows.Under(ByBlob, "", store.Position{}) {
			if !of(w) {
				return
			}
		}
	}
}

// ImageBlobs returns the contents of images, each once, of which the digests of chunks are known.
func (t *Tables) ImageBlobs() (refs []trivet.BlobRef) {
	known := map[string]bool{}
	for i := range t.Images.AllShared() {
		if ref := i.Spec.Blob; ref.Chunks != "" && !known[ref.Digest] {
			known[ref.Digest], refs = true, append(refs, ref)
		}
	}
	return refs
}

// BlobUse finds a record that refers to a blob. Unauthenticated clients cause it: its cost is that of an index.
func (t *Tables) BlobUse(digest string) (BlobUse, bool) {
	if use, ok := firstUse(t.Images.SharedBy(ByBlob, digest), digest); ok {
		return use, true
	}
	if use, ok := firstUse(t.Platforms.SharedBy(ByBlob, digest), digest); ok {
		return use, true
	}
	if use, ok := firstUse(t.Upgrades.SharedBy(ByBlob, digest), digest); ok {
		return use, true
	}
	return firstUse(t.Workflows.SharedBy(ByBlob, digest), digest)
}

func firstUse[R trivet.Record](records []R, digest string) (BlobUse, bool) {
	for _, r := range records {
		for _, ref := range BlobsOf(r) {
			if ref.Digest == digest {
				return BlobUse{ref, trivet.KindOf(r), r.Header().ShortName()}, true
			}
		}
	}
	return BlobUse{}, false
}

func digestsOf[R trivet.Record](r R) (all []string) {
	for _, ref := range BlobsOf(r) {
		if !slices.Contains(all, ref.Digest) {
			all = append(all, ref.Digest)
		}
	}
	return all
}
