package test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

const install = `actions:
  - {name: wipe, use: wipe}
  - {name: rest, use: noop, with: {sleep: 100ms}}
  - {name: seed, use: seed}
  - {name: reboot, use: reboot}
`

// newInstallSite is a site with a network, a template and two machines, all by Terraform. The second machine fails.
func newInstallSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t)
	s.prepare()
	s.resource("trivet_network").mustApply("create", object{"name": "loop", "spec": network})
	s.resource("trivet_template").mustApply("create", object{"name": "install", "spec": install})
	for name, mac := range map[string]string{"good": "52:54:00:00:00:01", "bad": "52:54:00:00:00:02"} {
		s.resource("trivet_machine").mustApply("create", object{"name": name, "spec": "nics: [{mac: '" + mac + "'}]\n"})
	}
	s.newMachine("good", "52:54:00:00:00:01", nil).reset()
	s.newMachine("bad", "52:54:00:00:00:02", map[string]error{"rest": errors.New("the disk is on \x1b[31mfire")}).reset()
	return s
}

// A creation waits until the machine is installed. A destruction leaves no provision, and the machine has none.
func TestProvisionSucceeds(t *testing.T) {
	t.Parallel()
	s := newInstallSite(t)
	r := s.resource("trivet_provision")
	config := object{"name": "web1", "spec": "{template: install, machine: good, hostname: web1}"}
	r.mustApply("create", config)
	if got := r.json("status"); got["state"] != "succeeded" || got["machine"] != "good" {
		t.Errorf("status after the creation: %v", got)
	}
	if m := must[trivet.Machine](s, "", "good"); m.Status.State != trivet.MachineActive {
		t.Errorf("the machine is %s", m.Status.State)
	}
	p, text := r.plan(config.with("spec", "{template: install, machine: good, hostname: web2}"))
	if text != "" || p.action() != "replace" {
		t.Errorf("another host name of an installed machine: %s", describe(p, text))
	}
	r.mustDestroy()
	if m := must[trivet.Machine](s, "", "good"); m.Status.Provision != "" || !s.isGone("provision", "default", "web1") {
		t.Errorf("after the destruction the machine has %q", m.Status.Provision)
	}
}

// A provision that fails is an error with the reason, and is in the state, so that Terraform replaces it.
func TestProvisionFails(t *testing.T) {
	t.Parallel()
	s := newInstallSite(t)
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"run": {"{template: install, machine: bad}", []string{"provision run", "failed", "step rest", "the disk is on ",
			"trivet why run"}},
		"none": {"{template: install, selector: {a: b}, ifNoMachine: fail}", []string{"provision none", "failed",
			"trivet why none"}},
	} {
		r := s.resource("trivet_provision")
		_, text := r.apply(object{"name": name, "spec": c.spec})
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the error does not contain %q: %s", name, want, text)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("%s: the error has control characters: %q", name, text)
		}
		if !r.exists() || r.json("status")["state"] != "failed" {
			t.Fatalf("%s: in the state: %v", name, r.exists())
		}
		r.mustDestroy()
	}
}

// A creation that waits ends with its timeout, by a signal to Terraform, and when the provision is deleted. What it
// waits for is in the state, and continues.
func TestProvisionWaits(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.resource("trivet_template").mustApply("create", object{"name": "t", "spec": noop})
	config := object{"name": "web1", "spec": "{template: t, selector: {pool: web}}"}
	r := s.resource("trivet_provision")
	_, text := r.apply(config.with("timeouts", map[string]any{"create": "1s", "delete": "1m"}))
	for _, want := range []string{"has not ended after 1s; it is pending", "terraform untaint"} {
		if !strings.Contains(text, want) {
			t.Errorf("the timeout's error does not contain %q: %s", want, text)
		}
	}
	if !r.exists() || s.isGone("provision", "default", "web1") {
		t.Fatal("the provision is not in the state, or it was deleted")
	}
	r.mustDestroy()
	s.expectCreatedDespite(config)
	for name, end := range map[string]struct {
		stop func() error
		want string
	}{
		"signal": {func() error {
			_, err := s.server.StopProvider(s.ctx, &tfprotov6.StopProviderRequest{})
			return err
		}, "interrupted"},
		"delete": {func() error { return s.records("provision").Delete(t.Context(), "delete") }, "it was deleted while"},
	} {
		r := s.resource("trivet_provision")
		var stopping sync.WaitGroup
		stopping.Go(func() { s.whenExists(name, end.stop) })
		_, text := r.apply(config.with("name", name))
		if stopping.Wait(); !strings.Contains(text, end.want) {
			t.Errorf("%s: %q; want %q", name, text, end.want)
		}
		if text := r.read(); text != "" || r.exists() != (name == "signal") {
			t.Errorf("%s: %q, in the state: %v", name, text, r.exists())
		}
	}
}

// expectCreatedDespite creates a provision although Terraform was interrupted before: otherwise it would not know one
// whose creation was interrupted.
func (s *site) expectCreatedDespite(config object) {
	s.Helper()
	r := s.resource("trivet_provision")
	p, text := r.plan(config)
	if text != "" {
		s.Fatal(text)
	}
	ctx, interrupt := context.WithCancel(s.ctx)
	interrupt()
	if text := r.change(ctx, p); !strings.Contains(text, "interrupted") || !r.exists() {
		s.Errorf("interrupted before the creation: %q, in the state: %v", text, r.exists())
	}
	r.mustDestroy()
}

// whenExists calls a function once a provision exists.
func (s *site) whenExists(name string, then func() error) {
	for e, err := range s.client.Watch(s.Context(), watchOf(name)) {
		if err == nil && e.Record == nil {
			continue
		}
		if err == nil {
			err = then()
		}
		if err != nil {
			s.Errorf("%s: %v", name, err)
		}
		return
	}
}

// A provision with a count is updated in place, and its members are gone when its destruction has ended.
func TestProvisionWithCount(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.resource("trivet_template").mustApply("create", object{"name": "t", "spec": noop})
	r := s.resource("trivet_provision")
	config := object{"name": "web", "wait": false, "spec": "{template: t, selector: {pool: web}, count: 2}"}
	r.mustApply("create", config)
	s.head.Await("two members", func() error {
		_, err := s.records("provision").Get(t.Context(), "web-2")
		return err
	})
	r.mustApply("update", config.with("spec", "{template: t, selector: {pool: web}, count: 40}"))
	s.head.Await("more members", func() error {
		_, err := s.records("provision").Get(t.Context(), "web-40")
		return err
	})
	r.mustDestroy()
	if left, _, err := s.records("provision").RawList(t.Context(), client.ListOptions{}); len(left) > 0 || err != nil {
		t.Errorf("%d provisions exist after the destruction: %v", len(left), err)
	}
}
