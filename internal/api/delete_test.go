package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// A token is of one account: one of the same name that is created later is not meant.
func TestTokensOfADeletedAccount(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	accounts := client.Of[trivet.Account](admin)
	create := func(role trivet.AccountRole) {
		t.Helper()
		if _, err := accounts.Create(t.Context(), &trivet.Account{Meta: trivet.Meta{Name: "alice"},
			Spec: trivet.AccountSpec{Role: role}}); err != nil {
			t.Fatal(err)
		}
	}
	create(trivet.AccountViewer)
	var tokens []string
	for range 60 { // more than one transaction deletes
		_, got := h.ask(h.admin, "POST", "/v1/tokens/issue", `{"account":"alice"}`)
		tokens = append(tokens, got["token"].(string))
	}
	if status, got := h.ask(tokens[0], "GET", "/v1/whoami", ""); status != http.StatusOK {
		t.Fatalf("the token is refused: %d %v", status, got)
	}
	if err := accounts.Delete(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	create(trivet.AccountAdmin)
	for i, token := range tokens {
		if status, got := h.ask(token, "GET", "/v1/whoami", ""); status != http.StatusUnauthorized {
			t.Fatalf("token %d of the deleted account: %d %v", i, status, got)
		}
	}
}

// A dry run of a revocation revokes nothing.
func TestDryRunOfARevocation(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	if _, err := client.Of[trivet.Account](h.client(h.admin)).Create(t.Context(), &trivet.Account{
		Meta: trivet.Meta{Name: "bob"}, Spec: trivet.AccountSpec{Role: trivet.AccountViewer}}); err != nil {
		t.Fatal(err)
	}
	_, issued := h.ask(h.admin, "POST", "/v1/tokens/issue", `{"account":"bob"}`)
	token := issued["token"].(string)
	id := issued["name"].(string)
	for _, step := range []struct {
		path string
		then int
	}{{"/v1/tokens/" + id + "?dryRun=1", http.StatusOK}, {"/v1/tokens/" + id, http.StatusUnauthorized}} {
		if status, got := h.ask(h.admin, "DELETE", step.path, ""); status != http.StatusOK {
			t.Fatalf("DELETE %s: %d %v", step.path, status, got)
		}
		if status, got := h.ask(token, "GET", "/v1/whoami", ""); status != step.then {
			t.Errorf("the token after DELETE %s: %d %v, want %d", step.path, status, got, step.then)
		}
	}
}

// A machine does not inherit what an earlier one of its name had.
func TestMachineOfTheSameName(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	machines := client.Of[trivet.Machine](admin)
	first, err := machines.Create(t.Context(), machine("m1", macA))
	if err != nil {
		t.Fatal(err)
	}
	put(h, h.fleet.Addresses, &trivet.Address{Meta: trivet.Meta{Name: "10.0.0.1"},
		Spec: trivet.AddressSpec{Network: "lan", MAC: macA, Machine: "m1"}})
	if err := errors.Join(admin.Quarantine(t.Context(), "m1", "noise"), machines.Delete(t.Context(), "m1")); err != nil {
		t.Fatal(err)
	}
	if n := h.fleet.MACs.Len() + h.fleet.Addresses.Len(); n != 0 {
		t.Errorf("%d MACs and addresses of the deleted machine", n)
	}
	second, err := machines.Create(t.Context(), machine("m1", macA))
	if err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[string]int{first.UID: 1, second.UID: 0} {
		events, _, err := client.Of[trivet.Event](admin).List(t.Context(),
			client.ListOptions{Fields: "spec.subjectUID=" + uid})
		if err != nil || len(events) != want {
			t.Errorf("%d events, want %d: %v", len(events), want, err)
		}
	}
}

// references are records of which the second refers to the first.
var references = map[string][2]trivet.Record{
	"default platform": {platform("p1"), &trivet.Site{Meta: trivet.Meta{Name: "site"},
		Spec: trivet.SiteSpec{Platform: "p1"}}},
	"platform of a machine": {platform("p1"), &trivet.Machine{Meta: trivet.Meta{Name: "m1"},
		Spec: trivet.MachineSpec{Platform: "p1"}}},
	"secret of a BMC": {&trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "bmc"}},
		&trivet.Machine{Meta: trivet.Meta{Name: "m1"},
			Spec: trivet.MachineSpec{BMC: &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}}}},
	"template of a pending provision": {template("t1", "none"),
		&trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p1"},
			Spec: trivet.ProvisionSpec{Template: "t1", Machine: "m1"}}},
	"image of a template": {&trivet.Image{Meta: trivet.Meta{Project: "default", Name: "i1"},
		Spec: trivet.ImageSpec{Format: "raw",
			Blob: someBlob}}, template("t1", "i1")},
	"image of a run": {&trivet.Image{Meta: trivet.Meta{Project: "default", Name: "i1"},
		Spec: trivet.ImageSpec{Format: "raw", Blob: someBlob}},
		&trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w1"}, Spec: trivet.WorkflowSpec{Machine: "m1",
			Images: []trivet.ImageRef{{Name: "i1"}}}}},
	"network of a machine's address": {network("lan", "10.0.0.0/24"), &trivet.Address{
		Meta: trivet.Meta{Name: "10.0.0.7"}, Spec: trivet.AddressSpec{Network: "lan", Machine: "m1"}}},
}

var someBlob = trivet.BlobRef{Digest: "sha256:" + strings.Repeat("a", 64), Bytes: 1}

func platform(name string) *trivet.Platform {
	return &trivet.Platform{Meta: trivet.Meta{Name: name}, Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: someBlob,
		Initrd: someBlob}}
}

func template(name, image string) *trivet.Template {
	return &trivet.Template{Meta: trivet.Meta{Project: "default", Name: name},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{
			{Name: "a", Use: "image", With: map[string]any{"image": image}}}}}
}

func (h *head) putAll(records ...trivet.Record) {
	h.t.Helper()
	_, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) error {
		for _, r := range records {
			next, err := cloneRecord(r)
			if err := errors.Join(err, tx.PutRecord(next)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// What another record refers to is deleted only by force, which says what refers to it still.
func TestReferencesPreventDeletion(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	for name, pair := range references {
		target, referrer := pair[0], pair[1]
		info := must(trivet.LookupKind(string(trivet.KindOf(target))))(t)
		kind := admin.Kind(info)
		h.putAll(target, referrer)
		err := kind.Delete(t.Context(), target.Header().Name)
		want := fmt.Sprintf("%s %s refers to it", strings.ToLower(string(trivet.KindOf(referrer))), referrer.Header().Name)
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", name, err, want)
		}
		result, err := kind.Force(true).Remove(t.Context(), target.Header().Name)
		if err != nil || len(result.Orphaned) != 1 || result.Orphaned[0].Name != referrer.Header().Name {
			t.Errorf("%s: forced: %+v, %v", name, result, err)
		}
		if _, err := kind.Get(t.Context(), target.Header().Name); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("%s: after it was deleted by force: %v", name, err)
		}
		h.putAll(target)
		h.remove(referrer)
		if err := kind.Delete(t.Context(), target.Header().Name); err != nil {
			t.Errorf("%s: nothing refers to it any more: %v", name, err)
		}
	}
	h.putAll(&trivet.Site{Meta: trivet.Meta{Name: "site"}})
	if err := admin.Kind(must(trivet.LookupKind("site"))(t)).Force(true).Delete(t.Context(), "site"); !errors.Is(err,
		trivet.ErrConflict) {
		t.Errorf("the site: %v", err)
	}
}

func (h *head) remove(r trivet.Record) {
	h.t.Helper()
	_, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) error {
		return tx.Delete(trivet.KindOf(r), r.Header().FullName())
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// A machine with a provision is not deleted, even by force: its run would never end.
func TestMachineInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.putAll(machine("m1", macA), &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p1"},
		Spec:   trivet.ProvisionSpec{Template: "t1", Machine: "m1"},
		Status: trivet.ProvisionStatus{State: trivet.ProvisionSucceeded, Machine: "m1"}})
	kind := h.client(h.admin).Kind(must(trivet.LookupKind("machine"))(t))
	for _, force := range []bool{false, true} {
		err := kind.Force(force).Delete(t.Context(), "m1")
		if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "trivet delete provision p1") {
			t.Errorf("force %t: %v", force, err)
		}
	}
	// a provision of an earlier machine of that name has nothing to do with this one
	h.putAll(machine("m2", macB), &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p2"},
		Spec:   trivet.ProvisionSpec{Template: "t1", Machine: "m2"},
		Status: trivet.ProvisionStatus{State: trivet.ProvisionSucceeded, Machine: "m2", MachineUID: "earlier"}})
	if err := kind.Delete(t.Context(), "m2"); err != nil {
		t.Errorf("a stale reference: %v", err)
	}
}

// Of a deletion and a reference that is created at the same moment through another head, one is refused.
func TestReferenceCreatedDuringDeletion(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	twin := h.twin()
	templates, provisions := client.Of[trivet.Template](h.client(h.admin)),
		client.Of[trivet.Provision](twin.client(h.admin))
	for i := range 40 {
		name := fmt.Sprint("t", i)
		h.putAll(template(name, "none"))
		if err := twin.fleet.Store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var deleted, created error
		var both sync.WaitGroup
		both.Go(func() { deleted = templates.Delete(t.Context(), name) })
		both.Go(func() {
			_, created = provisions.Create(t.Context(), &trivet.Provision{Meta: trivet.Meta{Name: "of-" + name},
				Spec: trivet.ProvisionSpec{Template: name, Machine: "m1"}})
		})
		both.Wait()
		if (deleted == nil) == (created == nil) {
			t.Errorf("%s: deleted %v, created %v", name, deleted, created)
		}
	}
}

// A conditional change succeeds at the revision that it names only, also where it would change nothing.
func TestConditionalChanges(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.putAll(machine("m1", macA))
	heads := []*head{h, h.twin()}
	const writers, increments = 4, 25
	var all sync.WaitGroup
	for i := range writers {
		machines := client.Of[trivet.Machine](heads[i%2].client(h.admin))
		all.Go(func() {
			for range increments {
				_, err := machines.Modify(t.Context(), "m1", func(m *trivet.Machine) error {
					var n int
					fmt.Sscan(m.Spec.Rack, &n)
					m.Spec.Rack = fmt.Sprint(n + 1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if err := h.fleet.Store.Sync(t.Context()); err != nil { // the last write may be the twin's
		t.Fatal(err)
	}
	m, err := h.fleet.Machines.Get("m1")
	if err != nil || m.Spec.Rack != fmt.Sprint(writers*increments) {
		t.Errorf("after %d increments: %s, %v", writers*increments, m.Spec.Rack, err)
	}
	for method, body := range map[string]string{
		"PATCH": `{"spec":{"rack":"` + m.Spec.Rack + `"}}`,
		"PUT":   `{"spec":{"nics":[{"mac":"` + macA + `"}],"rack":"` + m.Spec.Rack + `"}}`,
	} {
		status, got := h.ask(h.admin, method, "/v1/machines/m1", body, "Content-Type: "+trivet.MediaMergePatch,
			fmt.Sprintf("If-Match: %d", m.Revision-1))
		if status != http.StatusConflict {
			t.Errorf("%s at an old revision that changes nothing: %d %v", method, status, got)
		}
	}
}

func cloneRecord(r trivet.Record) (trivet.Record, error) {
	info, err := trivet.LookupKind(string(trivet.KindOf(r)))
	if err != nil {
		return nil, err
	}
	next := info.New()
	text, err := json.Marshal(r)
	return next, errors.Join(err, json.Unmarshal(text, next))
}
