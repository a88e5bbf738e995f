package api_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// keepFormer lets runs become former ones.
func (h *head) keepFormer() {
	h.t.Helper()
	put(h, h.fleet.Sites, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
		Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}})
}

// endedRun writes a run of provision p that has ended.
func (h *head) endedRun(name, machine, userData string) {
	h.t.Helper()
	put(h, h.fleet.Workflows, &trivet.Workflow{
		Meta: trivet.Meta{Project: "default", Name: name, Labels: map[string]string{"of": machine}},
		Spec: trivet.WorkflowSpec{Machine: machine, Provision: name[:strings.LastIndexByte(name, '-')],
			Actions: []trivet.Action{{Name: "a", Use: "noop"}}, Seed: trivet.Seed{UserData: userData}},
		Status: trivet.WorkflowStatus{State: trivet.WorkflowSucceeded}})
}

func (h *head) retire(names ...string) {
	h.t.Helper()
	if _, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) (err error) {
		for _, name := range names {
			err = errors.Join(err, h.fleet.Workflows.In(tx).Retire("default/"+name))
		}
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

// Former runs are read, listed, watched and have logs as all others, on each head.
func TestFormerRunsAreServed(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.keepFormer()
	for _, name := range []string{"p-1", "p-2", "p-3", "q-1"} {
		h.endedRun(name, "m1", "")
	}
	h.endedRun("p-4", "m2", "")
	key := trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}
	if err := h.logs.Append("default/p-2", key, 0, []byte("of p-2")); err != nil {
		t.Fatal(err)
	}
	workflows := client.Of[trivet.Workflow](h.client(h.admin))
	was, err := workflows.Get(t.Context(), "p-2")
	if err != nil {
		t.Fatal(err)
	}
	h.retire("p-1", "p-2", "q-1")
	twin := h.twin()
	for _, h := range []*head{h, twin} {
		cl := h.client(h.admin)
		workflows := client.Of[trivet.Workflow](cl)
		is, err := workflows.Get(t.Context(), "p-2")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(was, is); diff != "" {
			t.Errorf("%s: the run was changed:\n%s", h.name, diff)
		}
		for _, tc := range []struct {
			o    client.ListOptions
			want string
		}{
			{client.ListOptions{}, "p-1 p-2 p-3 p-4 q-1"},
			{client.ListOptions{Fields: "spec.machine=m1"}, "p-1 p-2 p-3 q-1"},
			{client.ListOptions{Fields: "spec.machine=m2"}, "p-4"},
			{client.ListOptions{Fields: "spec.machine!=m1"}, "p-4"},
			{client.ListOptions{Fields: "spec.provision=q"}, "q-1"},
			{client.ListOptions{Fields: "spec.provision=p,spec.machine=m1"}, "p-1 p-2 p-3"},
			{client.ListOptions{Labels: "of=m1", Fields: "name!=p-1"}, "p-2 p-3 q-1"},
			{client.ListOptions{Fields: "spec.machine=m3"}, ""},
		} {
			for _, tc.o.Page = range []int{1, 2, 1000} {
				list, _, err := workflows.List(t.Context(), tc.o)
				var names []string
				for _, w := range list {
					names = append(names, w.Name)
				}
				if got := strings.Join(names, " "); err != nil || got != tc.want {
					t.Errorf("%s: %+v: %s, %v, want %s", h.name, tc.o, got, err, tc.want)
				}
			}
		}
		two := client.WatchOptions{Kinds: []trivet.Kind{"Workflow"}, Names: []string{"p-1", "p-3"}}
		got, _ := follow(t, cl, two, 3, nil)
		if diff := cmp.Diff([]string{"put workflow/p-1", "put workflow/p-3", "synced"}, got); diff != "" {
			t.Errorf("%s: the state of a watch:\n%s", h.name, diff)
		}
	}
	for p, err := range h.client(h.admin).Logs(t.Context(), "p-2", client.LogOptions{Follow: true}) {
		if err != nil || p.Text != "" && p.Text != "of p-2" {
			t.Errorf("its log: %q, %v", p.Text, err)
		}
	}
	if status, _ := h.ask(h.admin, "GET", "/v1/projects/default/workflows/p-9", ""); status != http.StatusNotFound {
		t.Errorf("a run that there is not: %d", status)
	}
}

// A client that watches a run gets no event when it becomes a former one.
func TestWatchOfRunThatBecomesFormer(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.keepFormer()
	h.endedRun("p-1", "m1", "")
	got, _ := follow(t, h.client(h.admin), client.WatchOptions{Kinds: []trivet.Kind{"Workflow"}}, 3, func(i int) {
		if i == 2 {
			h.retire("p-1")
			h.endedRun("p-2", "m1", "")
		}
	})
	if diff := cmp.Diff([]string{"put workflow/p-1", "synced", "put workflow/p-2"}, got); diff != "" {
		t.Error(diff)
	}
}

// A page of large former runs has fewer of them than were asked for. The client gets all in further pages.
func TestPagesOfFormerRunsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.keepFormer()
	const all, batch = 80, 8
	var names []string
	for i := range all {
		names = append(names, fmt.Sprintf("p%02d-1", i))
		h.endedRun(names[i], fmt.Sprint("m", i/batch), strings.Repeat("x", 64<<10))
	}
	for part := range slices.Chunk(names, batch) {
		h.retire(part...)
	}
	resp := h.do(h.admin, "GET", "/v1/workflows?limit=1000", "")
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n > 4<<20+trivet.MaxRecord || n < 2<<20 {
		t.Errorf("a page has %d bytes, %v", n, err)
	}
	list, _, err := client.Of[trivet.Workflow](h.client(h.admin)).AllProjects().List(t.Context(),
		client.ListOptions{Page: 1000})
	var got []string
	for _, w := range list {
		got = append(got, w.Name)
	}
	if err != nil || !slices.Equal(got, names) || h.fleet.Workflows.Len() != 0 {
		t.Errorf("%d records, %v; want %d", len(list), err, all)
	}
}
