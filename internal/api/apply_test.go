package api_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Before all heads know the fields of managers, an apply creates or replaces a record, and stores none.
func TestApplyBeforeTheRelease(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	machines := machineKind(t, h.client(h.account("op", "operator")))
	apply := func(spec string) *trivet.Machine {
		t.Helper()
		m, err := machines.Apply(t.Context(), "m1", client.ApplyOptions{}, []byte(`{"name":"m1","spec":`+spec+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return m.(*trivet.Machine)
	}
	apply(`{"nics":[{"mac":"52:54:00:00:00:01"}]}`)
	if m := apply(`{"rack":"r1"}`); m.Spec.NICs != nil || m.Managed != nil {
		t.Errorf("before the release: %+v", m)
	}
	_, err := machines.Apply(t.Context(), "m1", client.ApplyOptions{Manager: "set"},
		[]byte(`{"name":"m1","spec":{"rack":"r1"}}`))
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "upgrade the other heads first") {
		t.Errorf("with a manager, before the release: %v", err)
	}
	h.reach(trivet.CurrentRelease)
	apply(`{"nics":[{"mac":"52:54:00:00:00:01"}]}`)
	m := apply(`{"nics":[{"mac":"52:54:00:00:00:01"}],"platform":""}`)
	if want := []string{"/spec/nics"}; m.Spec.Rack != "r1" || !slices.Equal(m.Managed["apply"], want) {
		t.Errorf("afterwards: %+v", m)
	}
	if m := apply(`{}`); m.Spec.NICs != nil || m.Spec.Rack != "r1" {
		t.Errorf("without the NICs: %+v", m.Spec)
	}
}

// The owners are written by applies only: a body or a patch cannot set them, and each other write that changes a field
// takes it from its manager.
func TestOwnersAreWrittenByApply(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.reach(trivet.CurrentRelease)
	token := h.account("op", "operator")
	machines := client.Of[trivet.Machine](h.client(token))
	const forged = `"managed":{"x":["/spec/rack"]}`
	is := func(what string, want map[string][]string) {
		t.Helper()
		m, err := machines.Get(t.Context(), "m1")
		if err != nil || !maps.EqualFunc(m.Managed, want, slices.Equal) {
			t.Errorf("%s: %v, %v, want %v", what, m.Managed, err, want)
		}
	}
	h.ask(token, "POST", "/v1/machines", `{"name":"m1",`+forged+`,"spec":{"rack":"r0"}}`)
	is("create", nil)
	apply := func(text, query string) (int, string) {
		t.Helper()
		status, body := h.ask(token, "PATCH", "/v1/machines/m1"+query, text, "Content-Type: "+trivet.MediaApplyPatch)
		return status, fmt.Sprint(body)
	}
	if status, body := apply(`{`+forged+`,"spec":{"rack":"r1"}}`, "?manager=set"); status != http.StatusOK {
		t.Fatal(status, body)
	}
	set := map[string][]string{"set": {"/spec/rack"}}
	is("apply", set)
	h.ask(token, "PUT", "/v1/machines/m1", `{"name":"m1",`+forged+`,"labels":{"a":"b"},"spec":{"rack":"r1"}}`)
	is("a replace that changes other fields", set)
	status, _ := h.ask(token, "PATCH", "/v1/machines/m1", `{"managed":null}`, "Content-Type: "+trivet.MediaMergePatch)
	if status != http.StatusUnprocessableEntity {
		t.Errorf("a patch of managed: status %d", status)
	}
	h.ask(token, "PUT", "/v1/machines/m1", `{"name":"m1","spec":{"rack":"r2"}}`)
	direct := map[string][]string{"direct": {"/spec/rack"}}
	is("a replace", direct)
	status, body := apply(`{"spec":{"rack":"r3"}}`, "?manager=set")
	if status != http.StatusConflict || !strings.Contains(body, "spec.rack") ||
		!strings.Contains(body, "--force-conflicts") {
		t.Errorf("status %d, %s", status, body)
	}
	is("a refused apply", direct)
	apply(`{"spec":{"rack":"r3"}}`, "?manager=set&force=1")
	is("a forced apply", set)
	h.ask(token, "PATCH", "/v1/machines/m1", `{"spec":{"rack":null}}`, "Content-Type: "+trivet.MediaMergePatch)
	is("a patch", direct)
	for query, problem := range map[string]string{"?manager=direct": "other than applies", "?manager=a%20b": "1 to 63"} {
		if status, body := apply(`{}`, query); status != http.StatusUnprocessableEntity || !strings.Contains(body, problem) {
			t.Errorf("%s: status %d, %s", query, status, body)
		}
	}
	if status, _ := apply(`{"spec":{"rak":"r1"}}`, ""); status != http.StatusUnprocessableEntity {
		t.Errorf("an unknown field: status %d", status)
	}
}

func machineKind(t *testing.T, cl *client.Client) client.Kind {
	t.Helper()
	return cl.Kind(must(trivet.LookupKind("Machine"))(t))
}

// Many sets of files apply to one record at once, and create it: each has its label afterwards, and no other's.
func TestApplyTogether(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.reach(trivet.CurrentRelease)
	cl := h.client(h.account("op", "operator"))
	machines := machineKind(t, cl)
	const managers = 8
	for round := range 3 {
		var all sync.WaitGroup
		for i := range managers {
			all.Go(func() {
				body := fmt.Sprintf(`{"name":"m1","labels":{"l%d":"%d"}}`, i, round)
				if _, err := machines.Apply(t.Context(), "m1", client.ApplyOptions{Manager: fmt.Sprint("set", i)},
					[]byte(body)); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		m, err := client.Of[trivet.Machine](cl).Get(t.Context(), "m1")
		if err != nil || len(m.Labels) != managers || len(m.Managed) != managers {
			t.Fatalf("round %d: %+v, %v", round, m, err)
		}
		for i := range managers {
			if m.Labels[fmt.Sprint("l", i)] != fmt.Sprint(round) {
				t.Errorf("round %d: labels %v", round, m.Labels)
			}
		}
	}
	_, err := machines.Apply(t.Context(), "m1", client.ApplyOptions{Manager: "set9"},
		[]byte(`{"name":"m1","labels":{"x":"y"}}`))
	if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "at most 8") {
		t.Errorf("one more manager: %v", err)
	}
}
