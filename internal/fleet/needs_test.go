package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// installing adds an image, and a template that writes it to a disk.
func (r *rack) installing(spec trivet.ImageSpec) {
	r.Helper()
	digest := "sha256:" + strings.Repeat("0", 64)
	spec.Blob, spec.Format = trivet.BlobRef{Digest: digest, Bytes: 1, Chunks: digest}, "raw"
	r.write(func(tx *store.Tx) error {
		return errors.Join(
			r.Images.In(tx).Create(&trivet.Image{Meta: trivet.Meta{Project: "default", Name: "os"}, Spec: spec}),
			r.Templates.In(tx).Create(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "install"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "image", Use: "image",
					With: map[string]any{"image": "os"}}}}}))
	})
}

func (r *rack) inventory(machine string, inv *trivet.Inventory) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get(machine)
		if err != nil {
			return err
		}
		m.Status.Inventory = inv
		return r.Machines.In(tx).Put(m)
	})
}

// A provision by selector leaves out machines whose disk is too small for its image, or that are of another
// architecture; one that names such a machine fails, before the machine is touched.
func TestMachineThatLacksWhatTheImageNeeds(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.installing(trivet.ImageSpec{RawBytes: 8e9, Arch: "amd64"})
	for _, name := range []string{"p1", "p2"} {
		r.inventory(name, &trivet.Inventory{Arch: "amd64", Disks: []trivet.Disk{{Name: "/dev/sda", Bytes: 4e9}}})
	}
	r.inventory("p3", &trivet.Inventory{Arch: "arm64", Disks: []trivet.Disk{{Name: "/dev/sda", Bytes: 40e9}}})
	pool := map[string]string{"pool": "p"}
	r.provisionOf("a", trivet.ProvisionSpec{Template: "install", Selector: pool})
	if p := r.provisionNamed("a"); p.Status.Machine != "p4" {
		t.Errorf("by selector: %+v", p.Status)
	}
	for name, want := range map[string]string{"p1": "machine p1 cannot be used: its disk is smaller than image os, 8GB",
		"p3": "machine p3 cannot be used: its architecture is not amd64, that of image os"} {
		r.provisionOf("on-"+name, trivet.ProvisionSpec{Template: "install", Machine: name})
		p := r.provisionNamed("on-" + name)
		if p.Status.State != trivet.ProvisionFailed || p.Status.Failure.Type != trivet.FaultConfiguration ||
			!strings.Contains(p.Status.Reason, want) {
			t.Errorf("on %s: %+v", name, p.Status)
		}
	}
	few := map[string]string{"few": "yes"}
	for _, name := range []string{"p1", "p2", "p3"} {
		r.label(name, few)
	}
	r.provisionOf("b", trivet.ProvisionSpec{Template: "install", Selector: few})
	const want = "no machine is free: 1 not used, as its architecture is not amd64, that of image os, " +
		"2 not used, as its disk is smaller than image os, 8GB"
	if p := r.provisionNamed("b"); p.Status.State != trivet.ProvisionPending || p.Status.Reason != want {
		t.Errorf("none fits: %+v", p.Status)
	}
	// The image is replaced by a smaller one.
	r.write(func(tx *store.Tx) error {
		image, err := r.Images.In(tx).Get("default/os")
		if err != nil {
			return err
		}
		image.Spec.RawBytes = 2e9
		return r.Images.In(tx).Put(image)
	})
	r.must(r.Claim(t.Context(), "default/b"))
	if p := r.provisionNamed("b"); p.Status.Machine != "p1" {
		t.Errorf("with a smaller image: %+v", p.Status)
	}
}

// A machine is offered to those that wait for it and can use it.
func TestOfferToOneThatCanUseIt(t *testing.T) {
	r := newRack(t)
	r.pool()
	r.installing(trivet.ImageSpec{Arch: "arm64"})
	few := map[string]string{"few": "yes"}
	r.provisionOf("a", trivet.ProvisionSpec{Template: "install", Selector: few})
	r.provisionOf("b", trivet.ProvisionSpec{Template: "t", Selector: few})
	r.inventory("p1", &trivet.Inventory{Arch: "amd64"})
	r.label("p1", few)
	r.must(r.Offer(t.Context(), "p1"))
	if p := r.provisionNamed("b"); p.Status.Machine != "p1" {
		t.Errorf("the second: %+v", p.Status)
	}
}
