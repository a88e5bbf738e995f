package state

import (
	"iter"

	"github.com/trivet-project/trivet"
)

// BlobsOf returns the blobs that a record refers to, which every full head must hold. A run that has ended needs none.
func BlobsOf(r trivet.Record) (refs []trivet.BlobRef) {
	switch r := r.(type) {
	case *trivet.Image:
		refs = append(refs, r.Spec.Blob)
	case *trivet.Platform:
		refs = append(refs, r.Spec.Kernel, r.Spec.Initrd)
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
	Name string
}

// BlobUses returns all references to blobs.
func (t *Tables) BlobUses() iter.Seq[BlobUse] {
	return func(yield func(BlobUse) bool) {
		of := func(r trivet.Record) bool {
			for _, ref := range BlobsOf(r) {
				if !yield(BlobUse{ref, trivet.KindOf(r), r.Header().Name}) {
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
		for w := range t.Workflows.AllShared() {
			if !of(w) {
				return
			}
		}
	}
}

// BlobUse finds a record that refers to a blob.
func (t *Tables) BlobUse(digest string) (BlobUse, bool) {
	for u := range t.BlobUses() {
		if u.Ref.Digest == digest {
			return u, true
		}
	}
	return BlobUse{}, false
}
