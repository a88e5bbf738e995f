package api_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Prometheus finds each head that serves metrics once, by its first address, and no other head.
func TestScrapeTargets(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	viewer := h.account("prometheus", "viewer")
	ask := func() (int, string) {
		t.Helper()
		resp := h.do(viewer, "GET", "/v1/prometheus/targets", "")
		defer resp.Body.Close()
		if kind := resp.Header.Get("Content-Type"); kind != "application/json" {
			t.Errorf("Content-Type %q; Prometheus requires application/json", kind)
		}
		return resp.StatusCode, string(must(io.ReadAll(resp.Body))(t))
	}
	if status, got := ask(); status != http.StatusOK || strings.TrimSpace(got) != "[]" {
		t.Errorf("without a head: %d %s", status, got)
	}
	if _, err := h.fleet.Store.Update(t.Context(), func(tx *store.Tx) error {
		head := func(name, role string, state trivet.HeadState, api ...string) error {
			return h.fleet.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: name},
				Spec: trivet.HeadSpec{Role: role}, Status: trivet.HeadStatus{State: state, API: api}})
		}
		return errors.Join(
			head("head2", "", trivet.HeadMember, "https://[fd00::2]:7480", "https://10.0.0.2:7480"),
			head("head1", trivet.RoleVoter, trivet.HeadJoining, "https://10.0.0.1:7480"),
			head("starting", "", trivet.HeadJoining),
			head("witness", trivet.RoleWitness, trivet.HeadMember, "https://10.0.0.3:7480"),
			head("gone", "", trivet.HeadRemoved, "https://10.0.0.4:7480"),
		)
	}); err != nil {
		t.Fatal(err)
	}
	want := `[{"targets":["10.0.0.1:7480"],"labels":{"head":"head1"}},` +
		`{"targets":["[fd00::2]:7480"],"labels":{"head":"head2"}}]`
	if status, got := ask(); status != http.StatusOK || strings.TrimSpace(got) != want {
		t.Errorf("%d %s\nwant %s", status, got, want)
	}
}
