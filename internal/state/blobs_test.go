package state_test

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func digest(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

func ref(digit string) trivet.BlobRef {
	return trivet.BlobRef{Digest: digest(digit), Bytes: 1, Chunks: digest("0")}
}

// The records that refer to a blob are found by an index, which follows them: a run that has ended refers to nothing.
func TestBlobUse(t *testing.T) {
	tables := storetest.New(t, state.New)
	run := &trivet.Workflow{Meta: trivet.Meta{Kind: "Workflow", Project: "default", Name: "w1"}}
	run.Spec.Machine = "m1"
	run.Spec.Images = []trivet.ImageRef{{Name: "i0", ImageSpec: trivet.ImageSpec{Blob: ref("d")}},
		{Name: "i1", ImageSpec: trivet.ImageSpec{Blob: ref("a")}}}
	image := &trivet.Image{Meta: trivet.Meta{Kind: "Image", Project: "default", Name: "i1"},
		Spec: trivet.ImageSpec{Blob: ref("a"), Format: "raw"}}
	platform := &trivet.Platform{Meta: trivet.Meta{Kind: "Platform", Name: "p1"},
		Spec: trivet.PlatformSpec{Arch: "amd64", Version: "1", Kernel: ref("b"), Initrd: ref("c")}}
	write := func(do func(tx *store.Tx) error) {
		t.Helper()
		if _, err := tables.Store.Update(t.Context(), do); err != nil {
			t.Fatal(err)
		}
	}
	write(func(tx *store.Tx) error { return tables.Images.In(tx).Put(image) })
	write(func(tx *store.Tx) error { return tables.Platforms.In(tx).Put(platform) })
	write(func(tx *store.Tx) error { return tables.Workflows.In(tx).Put(run) })
	expect := func(want map[string]string) {
		t.Helper()
		for digit, name := range want {
			use, ok := tables.BlobUse(digest(digit))
			if ok != (name != "") || use.Name != name || ok && use.Ref != ref(digit) {
				t.Errorf("blob %s: %+v, %v; want %q", digit, use, ok, name)
			}
		}
	}
	expect(map[string]string{"a": "i1", "b": "p1", "c": "p1", "d": "w1", "e": ""})
	write(func(tx *store.Tx) error { return tables.Images.In(tx).Delete("default/i1") })
	expect(map[string]string{"a": "w1"})
	run.Status.State = trivet.WorkflowSucceeded
	write(func(tx *store.Tx) error { return tables.Workflows.In(tx).Put(run) })
	expect(map[string]string{"a": "", "d": ""})
	write(func(tx *store.Tx) error {
		return tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
	})
	initrd := func(digit string) *trivet.PlatformInitrd { return &trivet.PlatformInitrd{Blob: ref(digit)} }
	platform.Status.Upgrade = &trivet.PlatformUpgrade{Imported: digest("c"), Initrd: initrd("e"), Former: initrd("f")}
	write(func(tx *store.Tx) error { return tables.Platforms.In(tx).Put(platform) })
	expect(map[string]string{"c": "p1", "e": "p1", "f": "p1"})
	platform.Spec.Initrd = ref("9") // another one is imported
	write(func(tx *store.Tx) error { return tables.Platforms.In(tx).Put(platform) })
	expect(map[string]string{"9": "p1", "c": "", "e": "", "f": ""})
	uses := 0
	for use := range tables.BlobUses() {
		if uses++; use.Name != "p1" {
			t.Errorf("%s refers to %s", use.Name, use.Ref.Digest)
		}
	}
	if uses != 2 {
		t.Errorf("%d references to blobs, want those of the platform", uses)
	}
}
