package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// audit returns the entries, the oldest first, as "account action kind/name result fields also".
func (h *head) audit(o client.AuditOptions) (lines []string) {
	h.t.Helper()
	page, err := h.client(h.admin).Audit(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range slices.Backward(page.Items) {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s/%s %s %s %s", e.Account, e.Action, e.Kind, e.Name,
			e.Result, strings.Join(e.Fields, ","), strings.Join(e.Also, ","))))
	}
	return lines
}

func TestAudit(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	op := h.account("op", "operator")
	operator, admin := h.client(op), h.client(h.admin)
	machines := client.Of[trivet.Machine](operator)
	m, err := machines.Create(ctx, machine("m1", macA))
	if err != nil {
		t.Fatal(err)
	}
	m.Spec.Rack, m.Labels = "a1", map[string]string{"row": "2"}
	if _, err := machines.Update(ctx, m); err != nil {
		t.Fatal(err)
	}
	if _, err := machines.Update(ctx, m); err != nil { // changes nothing
		t.Fatal(err)
	}
	err = errors.Join(operator.Quarantine(ctx, "m1", "loud"), operator.Accept(ctx, "m1"), machines.Delete(ctx, "m1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := machines.Delete(ctx, "m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Fatal(err)
	}
	secrets := client.Of[trivet.Secret](admin)
	s := &trivet.Secret{Meta: trivet.Meta{Project: "default", Name: "bmc"}, Spec: trivet.SecretSpec{
		Data: map[string]string{"password": "hunter2"}}}
	if _, err := secrets.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	s.Spec.Data["password"], s.Spec.Addresses = "hunter3", []netip.Prefix{netip.MustParsePrefix("10.0.8.0/24")}
	if _, err := secrets.Update(ctx, s); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := client.Of[trivet.Secret](operator).Get(ctx, "bmc"); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Of[trivet.Secret](operator).Delete(ctx, "bmc"); !errors.Is(err, trivet.ErrForbidden) {
		t.Fatal(err)
	}
	if _, err := operator.Audit(ctx, client.AuditOptions{}); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("an operator reads the audit log: %v", err)
	}
	issued, err := admin.IssueToken(ctx, trivet.TokenRequest{Account: "op"})
	if err != nil {
		t.Fatal(err)
	}
	id := issued.Name
	want := []string{
		"op create Machine/m1 ok  mac/52:54:00:00:00:0a",
		"op update Machine/m1 ok labels,spec.rack",
		"op quarantine Machine/m1 ok status.events,status.former,status.reason,status.state",
		"op accept Machine/m1 ok status.events,status.former,status.reason,status.state",
		"op delete Machine/m1 ok  mac/52:54:00:00:00:0a",
		"root create Secret/bmc ok",
		"root update Secret/bmc ok spec.addresses,spec.data.password",
		"op read Secret/bmc ok",
		"op delete Secret/bmc forbidden",
		"op read Account/ forbidden",
		"root issue Token/" + id + " ok",
	}
	got := h.audit(client.AuditOptions{})
	for i, line := range got {
		got[i] = strings.Replace(line, macA, "52:54:00:00:00:0a", 1)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	h.checkAuditEntries(op)
}

// checkAuditEntries checks what all entries contain, and that none has a secret.
func (h *head) checkAuditEntries(op string) {
	h.t.Helper()
	entries, err := h.fleet.Store.Cold(h.t.Context(), "audit", "", 100)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, cold := range entries {
		var e trivet.Audit
		if err := json.Unmarshal(cold.Doc, &e); err != nil {
			h.t.Fatal(err)
		}
		if e.Time.IsZero() || e.Request == "" || e.From != "127.0.0.1" || e.Head != h.name ||
			e.Account == "op" && e.Token != strings.Split(op, "_")[1] ||
			e.Kind == "Machine" && e.UID == "" || (e.Error == "") != (e.Result == "ok") {
			h.t.Errorf("incomplete: %s", cold.Doc)
		}
		if strings.Contains(string(cold.Doc), "hunter") || strings.Contains(string(cold.Doc), strings.Split(op, "_")[2]) {
			h.t.Errorf("an entry has a secret: %s", cold.Doc)
		}
	}
	for _, kind := range trivet.Kinds { // it costs no head memory
		if raws, _ := h.fleet.Store.List(kind.Kind, "", "", 0); kind.Kind == "Machine" && len(raws) > 0 {
			h.t.Errorf("%d machines", len(raws))
		}
	}
}

func TestAuditIsFilteredAndPaged(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ctx := t.Context()
	operator := h.client(h.account("op", "operator"))
	for i := range 7 {
		c := client.Of[trivet.Template](operator)
		if i%2 == 1 {
			c = client.Of[trivet.Template](h.client(h.admin))
		}
		_, err := c.Create(ctx, &trivet.Template{Meta: trivet.Meta{Project: "default", Name: fmt.Sprint("t", i)},
			Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "a", Use: "noop"}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		o    client.AuditOptions
		want int
	}{
		"account": {client.AuditOptions{Account: "op"}, 4}, "kind": {client.AuditOptions{Kind: "t"}, 7},
		"name":       {client.AuditOptions{Kind: "template", Name: "t3"}, 1},
		"other kind": {client.AuditOptions{Kind: "machines"}, 0},
		"since":      {client.AuditOptions{Since: time.Now().Add(-time.Hour)}, 7},
		"later":      {client.AuditOptions{Since: time.Now().Add(time.Hour)}, 0},
	} {
		if got := h.audit(c.o); len(got) != c.want {
			t.Errorf("%s: %d entries, want %d: %s", what, len(got), c.want, got)
		}
	}
	var names []string
	o := client.AuditOptions{Limit: 3}
	for {
		page, err := h.client(h.admin).Audit(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Items {
			names = append(names, e.Name)
		}
		if o.Continue = page.Continue; o.Continue == "" {
			break
		}
	}
	if want := []string{"t6", "t5", "t4", "t3", "t2", "t1", "t0"}; !slices.Equal(names, want) {
		t.Errorf("in pages: %v, want %v", names, want)
	}
	if _, err := h.client(h.admin).Audit(ctx, client.AuditOptions{Continue: "../x"}); !errors.Is(err,
		trivet.ErrInvalid) {
		t.Errorf("a bad position: %v", err)
	}
}

// An account that is refused again and again cannot fill the store.
func TestRefusedRequestsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	viewer := h.client(h.account("vi", "viewer"))
	for range 100 {
		if err := client.Of[trivet.Machine](viewer).Delete(t.Context(), "m1"); !errors.Is(err, trivet.ErrForbidden) {
			t.Fatal(err)
		}
	}
	if got := h.audit(client.AuditOptions{Account: "vi"}); len(got) == 0 || len(got) > 20 {
		t.Errorf("%d entries of 100 refused requests, want 1 to 20", len(got))
	}
}

// An account that only reads cannot displace the entries of others by reads of secrets, whatever it names.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	viewer := h.account("vi", "viewer")
	for i := range 50 {
		h.ask(viewer, "GET", fmt.Sprintf("/v1/projects/p%d/secrets", i), "")
		h.ask(viewer, "GET", fmt.Sprintf("/v1/projects/default/secrets/s%d", i), "")
	}
	got := h.audit(client.AuditOptions{Account: "vi"})
	if len(got) == 0 || len(got) > 20 || got[0] != "vi read Secret/ ok" {
		t.Errorf("%d entries of 100 reads, want 1 to 20: %q", len(got), got)
	}
}

// A change that cannot be recorded is not made.
func TestNoChangeWithoutItsEntry(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	before := h.fleet.Store.Revision()
	_, err := client.Of[trivet.Template](h.client(h.admin)).Create(t.Context(), &trivet.Template{
		Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "a", Use: "noop"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := h.fleet.Store.Revision() - before; n != 1 {
		t.Errorf("the change and its entry took %d revisions, want 1: they are one transaction", n)
	}
	if _, err := h.fleet.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.Delete("Template", "default/t")
	}); err != nil {
		t.Fatal(err)
	}
	if got := h.audit(client.AuditOptions{}); len(got) != 1 {
		t.Errorf("what a head does by itself is not in the log: %s", got)
	}
}
