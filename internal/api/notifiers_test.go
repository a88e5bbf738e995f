package api_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// newNotifiers returns a head of a site with a webhook's secret, and a notifier for a receiver.
func newNotifiers(t *testing.T, url string) (*head, *trivet.Notifier) {
	h := newHead(t)
	h.reach(trivet.CurrentRelease)
	key := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))
	secret := &trivet.Secret{Meta: trivet.Meta{Name: "hook"}, Spec: trivet.SecretSpec{Data: map[string]string{"key": key}}}
	must(client.Of[trivet.Secret](h.client(h.admin)).Create(t.Context(), secret))(t)
	return h, &trivet.Notifier{Meta: trivet.Meta{Name: "ops"}, Spec: trivet.NotifierSpec{
		Webhook: &trivet.Webhook{URL: url, Secret: "hook"}}}
}

// reach makes a release the one that all heads have.
func (h *head) reach(release trivet.Release) {
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: release}})
}

// Where notifications are sent to is decided by admins: not by operators, and a viewer cannot send a test either.
func TestNotifiersAreOfAdmins(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		sent <- r.Header.Get("webhook-id")
	}))
	t.Cleanup(receiver.Close)
	h, n := newNotifiers(t, receiver.URL)
	for _, role := range []string{"operator", "viewer"} {
		cl := h.client(h.account(role, role))
		if _, err := client.Of[trivet.Notifier](cl).Create(t.Context(), n); !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("%s creates one: %v", role, err)
		}
	}
	admin := h.client(h.admin)
	must(client.Of[trivet.Notifier](admin).Create(t.Context(), n))(t)
	for _, role := range []string{"operator", "viewer"} {
		cl := h.client(h.account(role, role))
		_, err := client.Of[trivet.Notifier](cl).Patch(t.Context(), "ops",
			[]byte(`{"spec":{"webhook":{"url":"http://169.254.169.254/"}}}`), 0)
		if !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("%s changes one: %v", role, err)
		}
		if _, err := cl.TestNotifier(t.Context(), "ops"); !errors.Is(err, trivet.ErrForbidden) {
			t.Errorf("%s tests one: %v", role, err)
		}
	}
	if len(sent) > 0 {
		t.Errorf("the receiver got %s", <-sent)
	}
	outcome, err := admin.TestNotifier(t.Context(), "ops")
	if err != nil || !outcome.Delivered || outcome.Error != "" || outcome.Head != "head0" || outcome.ID != <-sent {
		t.Errorf("a test: %+v, %v", outcome, err)
	}
	receiver.Close()
	outcome, err = admin.TestNotifier(t.Context(), "ops")
	if err != nil || outcome.Delivered || !strings.Contains(outcome.Error, "refused") {
		t.Errorf("a test of a receiver that is down: %+v, %v", outcome, err)
	}
	if _, err := admin.TestNotifier(t.Context(), "none"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("a test of none: %v", err)
	}
}

// A notifier names reasons that exist and a secret that exists, and its secret is kept while it does. A site has a
// bounded number of them.
func TestNotifierIsAdmitted(t *testing.T) {
	t.Parallel()
	h, n := newNotifiers(t, "http://127.0.0.1:1/")
	notifiers := client.Of[trivet.Notifier](h.client(h.admin))
	n.Spec.Events = []string{trivet.ReasonFailed, "ProvisionFailed"}
	if _, err := notifiers.Create(t.Context(), n); err == nil ||
		!strings.Contains(err.Error(), `spec.events[1] "ProvisionFailed" is the reason of no event`) {
		t.Errorf("an unknown reason: %v", err)
	}
	n.Spec.Events = nil
	n.Spec.Webhook.Secret = "none"
	if _, err := notifiers.Create(t.Context(), n); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("a secret that does not exist: %v", err)
	}
	n.Spec.Webhook.Secret = "hook"
	for i := range trivet.MaxNotifiers {
		n.Name = fmt.Sprint("n", i)
		must(notifiers.Create(t.Context(), n))(t)
	}
	n.Name = "more"
	if _, err := notifiers.Create(t.Context(), n); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "at most 16") {
		t.Errorf("one too many: %v", err)
	}
	secrets := h.client(h.admin).Kind(must(trivet.LookupKind("secrets"))(t))
	for _, force := range []bool{false, true} {
		if err := secrets.Force(force).Delete(t.Context(), "hook"); !errors.Is(err, trivet.ErrConflict) {
			t.Errorf("its secret is deleted, by force %t: %v", force, err)
		}
	}
	for i := range trivet.MaxNotifiers {
		if err := notifiers.Delete(t.Context(), fmt.Sprint("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := secrets.Delete(t.Context(), "hook"); err != nil {
		t.Errorf("nothing refers to the secret any more: %v", err)
	}
}

// Heads that do not know notifiers would not keep their secrets, nor deliver: none is created before all know them.
func TestNotifierNeedsTheRelease(t *testing.T) {
	t.Parallel()
	h, n := newNotifiers(t, "http://127.0.0.1:1/")
	h.reach("0.2")
	_, err := client.Of[trivet.Notifier](h.client(h.admin)).Create(t.Context(), n)
	if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "need release 0.3 on all heads") {
		t.Errorf("%v", err)
	}
}
