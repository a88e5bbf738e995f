package api_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// readyForMany makes all heads of a test have this release, with a template and a machine.
func readyForMany(h *head) {
	h.t.Helper()
	if _, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) error {
		site, err := h.fleet.Sites.In(tx).Get(trivet.SiteName)
		if errors.Is(err, trivet.ErrNotFound) {
			site, err = &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}}, nil
		}
		if err != nil {
			return err
		}
		site.Status.ClusterVersion = trivet.CurrentRelease
		return errors.Join(h.fleet.Sites.In(tx).Put(site),
			h.fleet.Templates.In(tx).Put(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "work", Use: "seed"}}}}),
			h.fleet.Machines.In(tx).Put(&trivet.Machine{
				Meta:   trivet.Meta{Name: "m1", Labels: map[string]string{"a": "b"}},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: macA}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}))
	}); err != nil {
		h.t.Fatal(err)
	}
}

func settleMembers(h *head, name string) {
	h.t.Helper()
	for more := true; more; {
		var err error
		if more, err = h.fleet.SettleMembers(h.t.Context(), "default/"+name); err != nil {
			h.t.Fatal(err)
		}
	}
}

const manyPath = "/v1/projects/default/provisions"

// A count is refused until all heads have this release: an older one would claim a machine for the provision itself.
func TestCountNeedsTheRelease(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "work", Use: "seed"}}}})
	body := `{"name":"web","spec":{"template":"t","selector":{"a":"b"},"count":2}}`
	status, got := h.ask(h.admin, "POST", manyPath, body)
	if text, _ := got["message"].(string); status != http.StatusConflict ||
		!strings.Contains(text, "spec.count need release") {
		t.Errorf("%d %v", status, got)
	}
	readyForMany(h)
	if status, got := h.ask(h.admin, "POST", manyPath, body); status != http.StatusCreated {
		t.Errorf("%d %v", status, got)
	}
}

// Of a provision with a count only the count can be changed, also before it has begun, and one for a machine gets none.
func TestChangeOfACount(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	readyForMany(h)
	for _, body := range []string{`{"name":"web","spec":{"template":"t","selector":{"a":"b"},"count":2}}`,
		`{"name":"one","spec":{"template":"t","selector":{"x":"y"}},"status":{"memberOf":"web","memberOfUID":"u"}}`} {
		if status, got := h.ask(h.admin, "POST", manyPath, body); status != http.StatusCreated {
			t.Fatalf("%d %v", status, got)
		}
	}
	settleMembers(h, "web")
	for _, c := range []struct {
		name, patch string
		want        int
	}{
		{"web", `{"spec":{"count":3}}`, http.StatusOK},
		{"web", `{"spec":{"maxInFlight":1}}`, http.StatusOK},
		{"web", `{"spec":{"count":3,"maxInFlight":0},"labels":{"x":"y"}}`, http.StatusOK},
		{"web", `{"spec":{"count":-1}}`, http.StatusUnprocessableEntity},
		{"web", `{"spec":{"count":20001}}`, http.StatusUnprocessableEntity},
		{"web", `{"spec":{"maxInFlight":-1}}`, http.StatusUnprocessableEntity},
		{"web", `{"spec":{"count":null}}`, http.StatusConflict},
		{"web", `{"spec":{"selector":{"c":"d"}}}`, http.StatusConflict},
		{"web", `{"spec":{"hostname":"w"}}`, http.StatusConflict},
		{"one", `{"spec":{"count":2}}`, http.StatusConflict},
		{"one", `{"spec":{"maxInFlight":2}}`, http.StatusUnprocessableEntity},
		{"one", `{"spec":{"hostname":"w"}}`, http.StatusOK},
	} {
		req := h.do(h.admin, "PATCH", manyPath+"/"+c.name, c.patch, "Content-Type: "+trivet.MediaMergePatch)
		req.Body.Close()
		if req.StatusCode != c.want {
			t.Errorf("%s %s: %d, want %d", c.name, c.patch, req.StatusCode, c.want)
		}
	}
	if p, err := h.fleet.Provisions.Get("default/one"); err != nil || p.Status.MemberOf != "" {
		t.Errorf("a status that a request has: %+v, %v", p, err)
	}
}

// The deletion of a member counts it, and that of its provision leaves the members to their controller, which releases
// their machines.
func TestDeletionOfMembers(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	readyForMany(h)
	provisions := client.Of[trivet.Provision](h.client(h.admin))
	two := 2
	if _, err := provisions.Create(t.Context(), &trivet.Provision{Meta: trivet.Meta{Name: "web"},
		Spec: trivet.ProvisionSpec{Template: "t", Selector: map[string]string{"a": "b"}, Count: &two}}); err != nil {
		t.Fatal(err)
	}
	settleMembers(h, "web")
	if err := h.fleet.Claim(t.Context(), "default/web-1"); err != nil {
		t.Fatal(err)
	}
	if err := provisions.Delete(t.Context(), "web-2"); err != nil {
		t.Fatal(err)
	}
	p, err := provisions.Get(t.Context(), "web")
	if err != nil || p.Status.Members != (trivet.MemberCounts{Running: 1}) ||
		p.Status.State != trivet.ProvisionRunning {
		t.Errorf("after a member was deleted: %+v, %v", p.Status, err)
	}
	if err := provisions.Delete(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	if m, err := h.fleet.Machines.Get("m1"); err != nil || m.Status.Provision != "web-1" {
		t.Errorf("the machine before its member is deleted: %+v, %v", m, err)
	}
	if _, err := h.fleet.Provisions.Get("default/web-1"); err != nil {
		t.Errorf("the member was deleted without its machine: %v", err)
	}
	settleMembers(h, "web")
	if m, err := h.fleet.Machines.Get("m1"); err != nil || m.Status.Provision != "" ||
		m.Status.State != trivet.MachineAvailable {
		t.Errorf("the machine afterwards: %+v, %v", m, err)
	}
	if n := h.fleet.Provisions.Len(); n != 0 {
		t.Errorf("%d provisions are left", n)
	}
}
