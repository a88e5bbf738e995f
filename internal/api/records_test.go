package api_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

const (
	macA = "52:54:00:00:00:0a"
	macB = "52:54:00:00:00:0b"
	macC = "52:54:00:00:00:0c"
)

func TestRecordLifecycle(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	machines := client.Of[trivet.Machine](h.client(h.admin))
	ctx := t.Context()

	created, err := machines.Create(ctx, machine("m1", macA))
	if err != nil {
		t.Fatal(err)
	}
	if created.Generation != 1 || len(created.UID) != 32 || created.Revision == 0 ||
		created.Status.State != trivet.MachineAvailable {
		t.Errorf("created: %+v", created)
	}
	if _, err := machines.Create(ctx, machine("m1", macB)); !errors.Is(err, trivet.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	created.Spec.Rack, created.Status.State = "r1", "active"
	now, err := machines.Update(ctx, created)
	if err != nil || now.Generation != 2 || now.Spec.Rack != "r1" || now.Status.State != trivet.MachineAvailable ||
		now.UID != created.UID {
		t.Errorf("updated: %+v, %v", now, err)
	}
	if again, err := machines.Update(ctx, created); err != nil || again.Revision != now.Revision {
		t.Errorf("the same update again must change nothing: %+v, %v", again, err)
	}
	created.Spec.Rack = "r2"
	if _, err := machines.Update(ctx, created); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "your copy is generation 1; the record is now 2") {
		t.Errorf("update of a changed record: %v", err)
	}
	patched, err := machines.Patch(ctx, "m1", []byte(`{"labels":{"row":"7"},"spec":{"rack":null}}`), now.Revision)
	if err != nil || patched.Generation != 3 || patched.Spec.Rack != "" || patched.Labels["row"] != "7" ||
		len(patched.Spec.NICs) != 1 {
		t.Errorf("patched: %+v, %v", patched, err)
	}
	if _, err := machines.Patch(ctx, "m1", []byte(`{"spec":{"rack":"r3"}}`), now.Revision); !errors.Is(err,
		trivet.ErrConflict) {
		t.Errorf("patch of an old revision: %v", err)
	}
	if err := machines.Delete(ctx, "m1"); err != nil {
		t.Fatal(err)
	}
	if _, err := machines.Get(ctx, "m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("get of a deleted record: %v", err)
	}
	if _, err := machines.Create(ctx, machine("m2", macA)); err != nil {
		t.Errorf("the MAC of a deleted machine is free: %v", err)
	}
}

// Changes of status never reject a user's edit, and a user's edit never overwrites status.
func TestStatusChurn(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	machines := client.Of[trivet.Machine](h.client(h.admin))
	m, err := machines.Create(t.Context(), machine("m1", macA))
	if err != nil {
		t.Fatal(err)
	}
	churned := *m
	churned.Revision, churned.Status.Power = 0, "on"
	put(h, h.fleet.Machines, &churned)
	m.Spec.Rack = "r1"
	got, err := machines.Update(t.Context(), m)
	if err != nil || got.Status.Power != "on" || got.Spec.Rack != "r1" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestTwoMachinesCannotHaveOneMAC(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	machines := client.Of[trivet.Machine](h.client(h.admin))
	ctx := t.Context()
	for name, macs := range map[string][]string{"m1": {macA, macB}, "m2": {macC}} {
		if _, err := machines.Create(ctx, machine(name, macs...)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := machines.Create(ctx, machine("m3", macB))
	if !errors.Is(err, trivet.ErrExists) || !strings.Contains(err.Error(), "belongs to machine m1") {
		t.Errorf("create: %v", err)
	}
	if _, err := machines.Update(ctx, machine("m2", macC, macA)); !errors.Is(err, trivet.ErrExists) {
		t.Errorf("update: %v", err)
	}
	if _, err := machines.Update(ctx, machine("m1", macA)); err != nil { // releases B
		t.Fatal(err)
	}
	// takes B, releases C
	if _, err := machines.Patch(ctx, "m2", []byte(`{"spec":{"nics":[{"mac":"`+macB+`"}]}}`), 0); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, mac := range h.fleet.MACs.List() {
		got[mac.Name] = mac.Spec.Machine
	}
	if diff := cmp.Diff(map[string]string{macA: "m1", macB: "m2"}, got); diff != "" {
		t.Error(diff)
	}
}

// Fields that neither this head nor the writer knows are kept.
func TestUnknownFieldsAreKept(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	if _, err := h.fleet.Store.Update(t.Context(), putRaw("Machine", "m1",
		`{"kind":"Machine","name":"m1","spec":{"nics":[{"mac":"`+macA+`","vlan":7}],"color":"red"},`+
			`"status":{"mood":"good"}}`)); err != nil {
		t.Fatal(err)
	}
	machines := client.Of[trivet.Machine](h.client(h.admin))
	if _, err := machines.Modify(t.Context(), "m1",
		func(m *trivet.Machine) error { m.Spec.Rack = "r1"; return nil }); err != nil {
		t.Fatal(err)
	}
	m, err := machines.Get(t.Context(), "m1")
	if err != nil {
		t.Fatal(err)
	}
	m.Spec.Cordoned = true
	if _, err := machines.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	_, got := h.ask(h.admin, "GET", "/v1/machines/m1", "")
	spec := got["spec"].(map[string]any)
	nic := spec["nics"].([]any)[0].(map[string]any)
	if spec["color"] != "red" || nic["vlan"] != 7.0 || got["status"].(map[string]any)["mood"] != "good" ||
		spec["rack"] != "r1" || spec["cordoned"] != true {
		t.Errorf("%v", got)
	}
	status, _ := h.ask(h.admin, "PATCH", "/v1/machines/m1", `{"spec":{"shape":"round"}}`,
		"Content-Type: application/merge-patch+json")
	if _, got = h.ask(h.admin, "GET", "/v1/machines/m1", ""); status != 200 ||
		got["spec"].(map[string]any)["shape"] != "round" {
		t.Errorf("a newer program's field was dropped: %d %v", status, got)
	}
}

func TestListSelectsAndPages(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	for i := range 25 {
		m := machine(fmt.Sprintf("m%02d", i), fmt.Sprintf("52:54:00:00:01:%02x", i))
		m.Labels = map[string]string{"odd": fmt.Sprint(i%2 == 1)}
		m.Spec.Rack = fmt.Sprintf("r%d", i/10)
		put(h, h.fleet.Machines, m)
	}
	machines := client.Of[trivet.Machine](h.client(h.admin))
	for name, tc := range map[string]struct {
		o    client.ListOptions
		want string
	}{
		"all in pages": {client.ListOptions{Page: 7}, "25 m00 m24"},
		"labels":       {client.ListOptions{Labels: "odd=true", Page: 5}, "12 m01 m23"},
		"not label":    {client.ListOptions{Labels: "odd!=true"}, "13 m00 m24"},
		"absent label": {client.ListOptions{Labels: "none!=x"}, "25 m00 m24"},
		"field":        {client.ListOptions{Fields: "spec.rack=r1", Page: 1}, "10 m10 m19"},
		"field and label": {client.ListOptions{Fields: "spec.rack!=r1,spec.rack!=r2", Labels: "odd=true"},
			"5 m01 m09"},
		"field in a list":   {client.ListOptions{Fields: "spec.nics.mac=52:54:00:00:01:05"}, "1 m05 m05"},
		"field of a map":    {client.ListOptions{Fields: "labels.odd=true,name=m03"}, "1 m03 m03"},
		"field not there":   {client.ListOptions{Fields: "status.inventory.vendor="}, "25 m00 m24"},
		"nothing":           {client.ListOptions{Fields: "spec.cordoned=true"}, "0"},
		"address of a port": {client.ListOptions{Fields: "spec.nics.address=10.0.0.1"}, "0"},
	} {
		list, revision, err := machines.List(t.Context(), tc.o)
		got := fmt.Sprint(len(list))
		if len(list) > 0 {
			got += " " + list[0].Name + " " + list[len(list)-1].Name
		}
		if err != nil || got != tc.want || revision == 0 ||
			!slices.IsSortedFunc(list, func(a, b *trivet.Machine) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("%s: %s at %d, %v; want %s", name, got, revision, err, tc.want)
		}
	}
}

// A page of large records has fewer of them than were asked for. The client gets all in further pages.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	const all, batch = 100, 10
	for i := 0; i < all; i += batch {
		_, err := h.fleet.Store.Update(t.Context(), func(tx *store.Tx) (err error) {
			for j := i; j < i+batch; j++ {
				p := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: fmt.Sprintf("p%02d", j)},
					Spec: trivet.ProvisionSpec{Template: "t", Machine: "m", UserData: strings.Repeat("x", 64<<10)}}
				err = errors.Join(err, h.fleet.Provisions.In(tx).Create(p))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	resp := h.do(h.admin, "GET", "/v1/provisions?limit=1000", "")
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n > 4<<20+trivet.MaxRecord {
		t.Errorf("a page has %d bytes, %v", n, err)
	}
	list, _, err := client.Of[trivet.Provision](h.client(h.admin)).AllProjects().List(t.Context(),
		client.ListOptions{Page: 1000})
	names := map[string]bool{}
	for _, p := range list {
		names[p.Name] = true
	}
	if err != nil || len(list) != all || len(names) != all {
		t.Errorf("%d records with %d names, %v; want %d", len(list), len(names), err, all)
	}
}

// A list whose selector matches few records reads a bounded number of them for each page, which may be empty. The
// client gets all in further pages.
func TestListReadsFewRecords(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.handler.SetScan(20)
	const n = 60
	for i := range n {
		m := machine(fmt.Sprintf("m%02d", i))
		m.Labels = map[string]string{"last": fmt.Sprint(i == n-1)}
		put(h, h.fleet.Machines, m)
	}
	status, got := h.ask(h.admin, "GET", "/v1/machines?labels=last=true&limit=10", "")
	items, isList := got["items"].([]any)
	if status != 200 || !isList || len(items) != 0 || got["continue"] == nil {
		t.Errorf("the first page: %d %v", status, got)
	}
	list, _, err := client.Of[trivet.Machine](h.client(h.admin)).List(t.Context(),
		client.ListOptions{Labels: "last=true", Page: 10})
	if err != nil || len(list) != 1 || list[0].Name != fmt.Sprintf("m%02d", n-1) {
		t.Errorf("%d records, %v", len(list), err)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	big := `{"name":"m1","labels":{"a":"` + strings.Repeat("x", 2<<20) + `"}}`
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/machines?fields=spec.rac=r1", "", 422, "did you mean rack?"},
		{"GET", "/v1/machines?fields=spec=r1", "", 422, "is an object; name one of its fields"},
		{"GET", "/v1/machines?fields=name.x=r1", "", 422, "has nothing below it"},
		{"GET", "/v1/machines?labels=x", "", 422, "want key=value"},
		{"GET", "/v1/machines?limit=0", "", 422, "must be 1 to 1000"},
		{"GET", "/v1/machines?continue=%21", "", 422, "is not the value of an earlier page"},
		{"GET", "/v1/machines/M", "", 404, ""},
		{"GET", "/v1/machines/..%2F..%2Fetc", "", 404, ""},
		{"PUT", "/v1/machines/..%2Fx", "{}", 422, "begin and end with a letter"},
		{"POST", "/v1/machines", `{"name":"a/../b"}`, 422, "begin and end with a letter"},
		{"POST", "/v1/machines", `{"name":"m1","spec":{"rak":1}}`, 422, "spec.rak is not known; did you mean rack?"},
		{"POST", "/v1/machines", `{"name":"m1","kind":"Image"}`, 422, "this URL is for Machine records"},
		{"POST", "/v1/machines", `{"name":"m1"`, 422, "not JSON"},
		{"POST", "/v1/machines", `null`, 422, "name is missing"},
		{"POST", "/v1/machines", strings.Repeat("[", 1<<20), 422, "nested too deep"},
		{"POST", "/v1/machines", big, 413, "over 1048576 bytes"},
		{"POST", "/v1/machines", `{"name":"m1","labels":{"a b":"x"}}`, 422, "use letters, digits"},
		{"PUT", "/v1/machines/none", `{"name":"none"}`, 404, "not found"},
		{"PUT", "/v1/machines/m1", `{"name":"m2"}`, 422, "cannot be renamed"},
		{"PATCH", "/v1/machines/m1", `{"status":{}}`, 422, "written by Trivet only"},
		{"PATCH", "/v1/machines/m1", `{"uid":"x"}`, 422, "cannot be patched"},
		{"PATCH", "/v1/machines/m1", `[]`, 422, "merge patch"},
		{"PUT", "/v1/projects/default/workflows/w1", `{}`, 403, "written by Trivet only"},
		{"GET", "/v1/machine", "", 404, "did you mean /v1/machines?"},
		{"GET", "/v1/nonsense", "", 404, "/openapi.json"},
		{"GET", "/v1/watch?from=x", "", 422, "must be a revision"},
		{"GET", "/v1/watch?kinds=nonsense", "", 422, "unknown kind"},
		{"GET", "/v1/machines?labels=a%3D" + strings.Repeat("x", 9<<10), "", 413, "at most 8192"},
		{"POST", "/v1/projects/default/templates", `{"name":"t","spec":{"actions":[{"name":"a","use":"file","with":{"content":"{{.Nope}}"}}]}}`, 422, "uses .Nope"},
		{"POST", "/v1/projects/default/provisions", `{"name":"p","spec":{"template":"none","machine":"m1"}}`, 422,
			"names template none"},
		{"POST", "/v1/projects/default/images", `{"name":"i","spec":{"format":"raw","blob":{"digest":"sha256:` +
			strings.Repeat("a", 64) + `","bytes":1}}}`, 422, "upload it first"},
		{"POST", "/v1/tokens", `{}`, 403, "written by Trivet only"},
	} {
		status, got := h.ask(h.admin, tc.method, tc.path, tc.body, "Content-Type: application/merge-patch+json")
		text := fmt.Sprint(got)
		if status != tc.status || !strings.Contains(text, tc.want) || got["requestID"] == "" {
			t.Errorf("%s %.80s %.60s: %d %.300s; want %d %q", tc.method, tc.path, tc.body, status, text, tc.status,
				tc.want)
		}
	}
	if n := len(h.fleet.Machines.List()); n != 0 {
		t.Errorf("%d machines were created", n)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	status, got := h.ask(h.admin, "POST", "/v1/machines?dryRun=1", `{"name":"m1","spec":{"nics":[{"mac":"`+macA+`"}]}}`)
	if status != 201 || got["status"].(map[string]any)["state"] != "available" {
		t.Errorf("%d %v", status, got)
	}
	if len(h.fleet.Machines.List())+len(h.fleet.MACs.List()) != 0 {
		t.Error("something was written")
	}
}
