package fleet_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// newAgedRack returns a rack whose records are a second apart, in the order of their creation.
func newAgedRack(t *testing.T) *rack {
	t.Helper()
	now := time.Now()
	opts := store.Options{Now: func() time.Time {
		now = now.Add(time.Second)
		return now
	}}
	r := &rack{t, fleet.New(storetest.On(t, storetest.Member(t), opts, state.New), "head0")}
	r.write(func(tx *store.Tx) error {
		return r.Templates.In(tx).Create(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
			Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "work", Use: "seed"}}}})
	})
	return r
}

// free adds a machine that can be claimed.
func (r *rack) free(n int, labels map[string]string) string {
	r.Helper()
	name, mac := fmt.Sprint("free", n), fmt.Sprintf("52:54:00:00:05:%02x", n)
	r.write(func(tx *store.Tx) error {
		return r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: name, Labels: labels},
			Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
			Status: trivet.MachineStatus{State: trivet.MachineAvailable}})
	})
	return name
}

// waits adds a provision.
func (r *rack) waits(name string, spec trivet.ProvisionSpec) {
	r.Helper()
	spec.Template = "t"
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name}, Spec: spec})
	})
}

// running returns the provisions that have a machine, as "p: m".
func (r *rack) running() (all []string) {
	for p := range r.Provisions.AllShared() {
		if p.Status.State == trivet.ProvisionRunning {
			all = append(all, p.Name+": "+p.Status.Machine)
		}
	}
	return all
}

func (r *rack) wantRunning(want ...string) {
	r.Helper()
	if got := r.running(); !slices.Equal(got, want) {
		r.Errorf("%q are running, want %q", got, want)
	}
}

// A machine that becomes available goes to the oldest provision that may use it. No other one is read or written: its
// revision stays.
func TestFreedMachineGoesToTheOldest(t *testing.T) {
	r := newAgedRack(t)
	in := func(labels ...string) trivet.ProvisionSpec {
		selector := map[string]string{}
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			selector[key] = value
		}
		return trivet.ProvisionSpec{Selector: selector}
	}
	for i := range 30 {
		r.waits(fmt.Sprintf("a%02d", i), in("rack=r2"))
	}
	r.waits("z", in("rack=r1", "gpu=yes"))
	r.waits("y", in("rack=r1"))
	r.waits("x", trivet.ProvisionSpec{Machine: "free3"})
	r.waits("w", in("gpu=yes"))
	revisions := map[string]int64{}
	for p := range r.Provisions.AllShared() {
		revisions[p.Name] = p.Revision
	}
	labels := map[string]string{"rack": "r1", "gpu": "yes", "arch": "amd64"}
	for n := 1; n <= 5; n++ {
		r.must(r.Offer(t.Context(), r.free(n, labels)))
	}
	r.wantRunning("w: free4", "x: free3", "y: free2", "z: free1")
	for p := range r.Provisions.AllShared() {
		if strings.HasPrefix(p.Name, "a") && p.Revision != revisions[p.Name] {
			t.Errorf("%s was written: %+v", p.Name, p.Status)
		}
	}
	if m, err := r.Machines.Get("free5"); err != nil || m.Status.State != trivet.MachineAvailable {
		t.Errorf("a machine that nothing waits for: %+v, %v", m, err)
	}
}

// A new provision does not get a machine that an older one waits for.
func TestNewProvisionWaitsItsPlace(t *testing.T) {
	r := newAgedRack(t)
	pool := trivet.ProvisionSpec{Selector: map[string]string{"pool": "p"}}
	r.waits("z-old", pool)
	r.waits("a-new", pool)
	r.free(1, pool.Selector)
	if err := r.Claim(t.Context(), "default/a-new"); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("the claim of the newer one: %v, want conflict, so that the caller chooses again", err)
	}
	r.wantRunning("z-old: free1")
	r.must(r.Claim(t.Context(), "default/a-new"))
	if p, err := r.Provisions.Get("default/a-new"); err != nil || p.Status.Reason != "no machine is free: 1 claimed" {
		t.Errorf("the newer one: %+v, %v", p.Status, err)
	}
	r.free(2, pool.Selector)
	r.must(r.Claim(t.Context(), "default/a-new"))
	r.wantRunning("a-new: free2", "z-old: free1")
}

// A provision that cannot use any machine ends, and the machine goes to the next one.
func TestOfferPassesARejectedProvision(t *testing.T) {
	r := newAgedRack(t)
	pool := trivet.ProvisionSpec{Selector: map[string]string{"pool": "p"}}
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "bad"},
			Spec: trivet.ProvisionSpec{Template: "t", Parameters: map[string]string{"unknown": "x"},
				Selector: pool.Selector}})
	})
	r.waits("good", pool)
	r.must(r.Offer(t.Context(), r.free(1, pool.Selector)))
	r.wantRunning("good: free1")
	if p, err := r.Provisions.Get("default/bad"); err != nil || p.Status.State != trivet.ProvisionFailed {
		t.Errorf("the one with an unknown parameter: %+v, %v", p.Status, err)
	}
}

// Machines that became available unnoticed are found page by page. What can have none costs no write.
func TestRecheckFindsWhatWasPassedOver(t *testing.T) {
	r := newAgedRack(t)
	none := trivet.ProvisionSpec{Selector: map[string]string{"pool": "none"}}
	for i := range 10 {
		r.waits(fmt.Sprint("n", i), none)
		r.must(r.Claim(t.Context(), fmt.Sprint("default/n", i)))
	}
	pool := trivet.ProvisionSpec{Selector: map[string]string{"pool": "p"}}
	for i := range 3 {
		r.waits(fmt.Sprint("p", i), pool)
	}
	for n := range 2 {
		r.free(n, pool.Selector)
	}
	before := r.Store.Revision()
	pages, last := 0, (*trivet.Provision)(nil)
	for pages == 0 || last != nil {
		var err error
		last, err = r.Recheck(t.Context(), last, 4)
		r.must(err)
		pages++
	}
	if pages != 4 {
		t.Errorf("13 provisions were rechecked in %d pages of 4", pages)
	}
	r.wantRunning("p0: free0", "p1: free1")
	if n := r.Store.Revision() - before; n != 3 {
		t.Errorf("%d writes, want one for each claim and one for why p2 waits", n)
	}
}

// Provisions wait for an image that is at fault without a transaction for each machine that becomes available, until
// the image is not at fault, or they may use another one.
func TestProvisionsWaitForTheImage(t *testing.T) {
	r := newAgedRack(t)
	image := &trivet.Image{Meta: trivet.Meta{Project: "default", Name: "os"}, Spec: trivet.ImageSpec{Format: "raw",
		Blob: trivet.BlobRef{Digest: "sha256:" + strings.Repeat("0", 64), Bytes: 1,
			Chunks: "sha256:" + strings.Repeat("0", 64)}}}
	template := &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"}, Spec: trivet.TemplateSpec{Actions: []trivet.Action{
		{Name: "image", Use: "image", With: map[string]any{"image": "os"}}}}}
	r.write(func(tx *store.Tx) error {
		image.Status.Failures = &trivet.SharedFailures{Generation: 1, Machines: []string{"m1", "m2"}}
		return errors.Join(r.Images.In(tx).Put(image), r.Templates.In(tx).Put(template))
	})
	pool := trivet.ProvisionSpec{Selector: map[string]string{"pool": "p"}}
	for i := range 4 {
		r.waits(fmt.Sprint("p", i), pool)
	}
	m := r.free(1, pool.Selector)
	r.must(r.Offer(t.Context(), m))
	for i := range 4 {
		if p, err := r.Provisions.Get(fmt.Sprint("default/p", i)); err != nil || p.Status.WaitsFor != "image os" {
			t.Errorf("%s: %+v, %v", p.Name, p.Status, err)
		}
	}
	before := r.Store.Revision()
	r.must(r.Offer(t.Context(), m))
	r.must(r.Claim(t.Context(), "default/p1"))
	if after := r.Store.Revision(); after != before {
		t.Errorf("provisions that wait for an image cost %d writes", after-before)
	}
	r.write(func(tx *store.Tx) error {
		p, err := r.Provisions.In(tx).Get("default/p2")
		if err == nil {
			p.Spec.Parameters = map[string]string{"unknown": "x"}
			err = r.Provisions.In(tx).Put(p)
		}
		return err
	})
	r.must(r.Claim(t.Context(), "default/p2"))
	r.must(r.Offer(t.Context(), m))
	if p, err := r.Provisions.Get("default/p2"); err != nil || p.Status.State != trivet.ProvisionFailed ||
		p.Status.WaitsFor != "" {
		t.Errorf("one that was changed: %+v, %v", p.Status, err)
	}
	r.write(func(tx *store.Tx) error {
		image.Status.Failures = nil
		image.Revision = 0
		return r.Images.In(tx).Put(image)
	})
	r.must(r.Claim(t.Context(), "default/p1"))
	r.must(r.Offer(t.Context(), m))
	r.wantRunning("p1: free1")
}
