package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/blob"
)

// Content that a request is about to refer to, or would upload again, is not removed as unused.
func TestContentInUseIsKept(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	for name, use := range map[string]func(ref trivet.BlobRef) error{
		"an image": func(ref trivet.BlobRef) error {
			_, err := client.Of[trivet.Image](admin).Create(t.Context(), &trivet.Image{Meta: trivet.Meta{Name: "i"},
				Spec: trivet.ImageSpec{Format: "raw", Blob: ref}})
			return err
		},
		"a platform": func(ref trivet.BlobRef) error {
			_, err := client.Of[trivet.Platform](admin).Create(t.Context(), &trivet.Platform{Meta: trivet.Meta{Name: "p"},
				Spec: trivet.PlatformSpec{Arch: "amd64", Version: "1", Kernel: ref, Initrd: ref}})
			return err
		},
		"an upload": func(ref trivet.BlobRef) error {
			_, err := admin.PutBlob(t.Context(), strings.NewReader("not sent"), client.PutOptions{Digest: ref.Digest})
			return err
		},
	} {
		ref, err := admin.PutBlob(t.Context(), strings.NewReader("content of "+name), client.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := blob.ParseDigest(ref.Digest)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := use(ref); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := h.blobs.DeleteUnused(d, before); !errors.Is(err, trivet.ErrConflict) || !h.blobs.Has(d) {
			t.Errorf("%s: its content was removed: %v", name, err)
		}
	}
}
