package fleet_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// machineFor creates a machine that one provision names.
func (r *rack) machineFor(name, mac string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: name},
			Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
			Status: trivet.MachineStatus{State: trivet.MachineAvailable}})
	})
}

func templateIn(project string, actions ...trivet.Action) *trivet.Template {
	return &trivet.Template{Meta: trivet.Meta{Project: project, Name: "t"}, Spec: trivet.TemplateSpec{
		Parameters: []trivet.Parameter{{Name: "image", Default: new("os")}}, Actions: actions}}
}

// provisionIn creates a provision and claims its machine.
func (r *rack) provisionIn(project, name string, spec trivet.ProvisionSpec) *trivet.Provision {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		return r.Provisions.In(tx).Create(&trivet.Provision{Meta: trivet.Meta{Project: project, Name: name}, Spec: spec})
	})
	r.must(r.Claim(r.Context(), project+"/"+name))
	p, err := r.Provisions.Get(project + "/" + name)
	r.must(err)
	return p
}

// Provisions of one name in two projects have runs of their own, on machines that belong to no project.
func TestRunsOfTwoProjects(t *testing.T) {
	r := newRack(t)
	r.machineFor("m2", "52:54:00:00:02:02")
	r.write(func(tx *store.Tx) error {
		return errors.Join(r.Templates.In(tx).Create(templateIn("blue", trivet.Action{Name: "first", Use: "seed"})),
			r.Templates.In(tx).Create(templateIn("green", trivet.Action{Name: "second", Use: "seed"})))
	})
	for machine, c := range map[string]struct{ project, action string }{"m1": {"blue", "first"}, "m2": {"green", "second"}} {
		p := r.provisionIn(c.project, "p", trivet.ProvisionSpec{Template: "t", Machine: machine})
		w, err := r.Workflows.Get(c.project + "/p-1")
		r.must(err)
		m, err := r.Machines.Get(machine)
		r.must(err)
		if p.Status.Workflow != "p-1" || m.Status.Workflow != c.project+"/p-1" || m.Status.Provision != c.project+"/p" ||
			w.Spec.Machine != machine || w.Spec.Actions[0].Name != c.action || r.RunOf(m) == nil {
			t.Errorf("%s: %+v, %+v, %+v", c.project, p.Status, m.Status, w.Spec)
		}
	}
	r.must(r.hello("k", 0))
	if run := r.GrantedRun(r.machine()); run == nil || run.Workflow != "blue/p-1" {
		t.Errorf("the agent is granted %+v, want the run blue/p-1", run)
	}
	for _, e := range r.events("") {
		if want := map[string]string{"machine/m1": "blue/p-1", "machine/m2": "green/p-1"}[e.Spec.Subject]; e.Spec.Workflow !=
			want {
			t.Errorf("event %s of %s has workflow %s, want %s", e.Spec.Reason, e.Spec.Subject, e.Spec.Workflow, want)
		}
	}
	r.write(func(tx *store.Tx) error {
		p, err := r.Provisions.In(tx).Get("blue/p")
		if err != nil {
			return err
		}
		return errors.Join(r.Release(tx, p), r.Provisions.In(tx).Delete("blue/p"))
	})
	other, err := r.Machines.Get("m2")
	r.must(err)
	if r.machine().Status.Provision != "" || other.Status.Provision != "green/p" {
		t.Errorf("after blue/p was deleted: %+v, %+v", r.machine().Status, other.Status)
	}
}

// A template of the library names the library's images; a parameter may name one of the provision's project, and no
// other. The run names images as its project does.
func TestImagesOfTheLibrary(t *testing.T) {
	for _, c := range []struct{ parameter, want, why string }{
		{"", "shared/os", ""},
		{"blue/own", "own", ""},
		{"own", "", "names image shared/own, which does not exist"},
		{"green/os", "", "is in another project"},
	} {
		r := newRack(t)
		r.write(func(tx *store.Tx) error {
			errs := []error{r.Templates.In(tx).Create(templateIn("shared",
				trivet.Action{Name: "image", Use: "image", With: map[string]any{"image": "{{.Params.image}}"}}))}
			for _, full := range []string{"shared/os", "blue/own", "green/os"} {
				project, name := trivet.SplitName(full)
				errs = append(errs, r.Images.In(tx).Create(&trivet.Image{Meta: trivet.Meta{Project: project, Name: name},
					Spec: trivet.ImageSpec{Format: "raw", Blob: trivet.BlobRef{Digest: "sha256:" + strings.Repeat("a", 64)}}}))
			}
			return errors.Join(errs...)
		})
		spec := trivet.ProvisionSpec{Template: "shared/t", Machine: "m1"}
		if c.parameter != "" {
			spec.Parameters = map[string]string{"image": c.parameter}
		}
		p := r.provisionIn("blue", "p", spec)
		if c.why != "" {
			if p.Status.State != trivet.ProvisionFailed || !strings.Contains(p.Status.Reason, c.why) {
				t.Errorf("%q: %+v, want %q", c.parameter, p.Status, c.why)
			}
			continue
		}
		w, err := r.Workflows.Get("blue/p-1")
		r.must(err)
		if len(w.Spec.Images) != 1 || w.Spec.Images[0].Name != c.want || w.Spec.Actions[0].With["image"] != c.want ||
			w.Spec.Template != "shared/t" {
			t.Errorf("%q: %+v", c.parameter, w.Spec)
		}
		image, err := r.Images.Get(trivet.Resolve("blue", c.want))
		r.must(err)
		r.write(func(tx *store.Tx) error {
			if n := len(tx.Referrers(image)); n != 1 {
				t.Errorf("%d runs refer to %s", n, image.FullName())
			}
			return nil
		})
	}
}
