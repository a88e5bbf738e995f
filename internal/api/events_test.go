package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/store"
)

// Events are in no head's copy. What a head wrote of a machine is read at each of three, at once: the machine's record,
// which counts its events, and the events are of one revision.
func TestEventsAreReadAtAnyHead(t *testing.T) {
	t.Parallel()
	a := newHead(t)
	heads := []*head{a, a.twin(), a.twin()}
	m := machine("m1")
	m.Status.State = trivet.MachineAvailable
	put(a, a.fleet.Machines, m)
	latest := trivet.HeaderRevision + ": " + trivet.RevisionLatest
	for i := range 20 {
		writer := heads[i%3]
		status, got := writer.ask(a.admin, "POST", "/v1/machines/m1/quarantine", fmt.Sprintf(`{"reason":"noise %d"}`, i),
			latest)
		if status != http.StatusNoContent {
			t.Fatalf("%d %v", status, got)
		}
		for _, h := range heads {
			_, m := h.ask(a.admin, "GET", "/v1/machines/m1", "", latest)
			status, list := h.ask(a.admin, "GET", "/v1/events?fields=spec.subject=machine/m1,spec.subjectUID="+
				m["uid"].(string), "")
			items, _ := list["items"].([]any)
			if status != http.StatusOK || len(items) != i+1 {
				t.Fatalf("%s, after event %d: %d, %d events", h.name, i, status, len(items))
			}
			newest := items[i].(map[string]any)
			status, one := h.ask(a.admin, "GET", "/v1/events/"+newest["name"].(string), "")
			if status != http.StatusOK || one["spec"].(map[string]any)["message"] != fmt.Sprint("noise ", i) {
				t.Fatalf("%s, after event %d: %d %v", h.name, i, status, one)
			}
		}
	}
	for _, h := range heads {
		if list, _ := h.fleet.Store.List("Event", "", "", 0); len(list) != 0 {
			t.Errorf("%s has %d events in its copy", h.name, len(list))
		}
	}
}

// writeEvents writes n events of machines m0, m1 and so on, of each as many as it keeps.
func (h *head) writeEvents(n int) {
	h.t.Helper()
	const batch = 64
	for i := 0; i < n; i += batch {
		if _, err := h.fleet.Store.Update(h.t.Context(), func(tx *store.Tx) error {
			for j := i; j < min(n, i+batch); j++ {
				uid := fmt.Sprint("u", j/trivet.EventsPerSubject)
				e := &trivet.Event{Meta: trivet.Meta{Name: trivet.EventName(uid, int64(j))}, Spec: trivet.EventSpec{
					Subject: fmt.Sprint("machine/m", j/trivet.EventsPerSubject), SubjectUID: uid, Seq: int64(j),
					Reason: trivet.ReasonClaimed}}
				if err := h.fleet.Events.In(tx).Put(e); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// A list of events is read in pages. One request reads a bounded number of them: where a selector matches few, its page
// is continued, and may be empty.
func TestEventsAreListedInPages(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	const all = 10_000
	h.writeEvents(all)
	if list, _ := h.fleet.Store.List("Event", "", "", 0); len(list) != 0 {
		t.Errorf("%d events are in the copy", len(list))
	}
	events := client.Of[trivet.Event](h.client(h.admin))
	for fields, want := range map[string]int{
		"": all,
		"spec.subject=machine/m7,spec.subjectUID=u7": trivet.EventsPerSubject,
		"spec.subjectUID=u7":                         trivet.EventsPerSubject,
		"spec.subject=machine/m8":                    trivet.EventsPerSubject,
		"spec.subject=machine/m8,spec.subjectUID=u7": 0,
		"spec.seq=9999":                              1,
		"spec.reason=Failed":                         0,
	} {
		list, _, err := events.List(t.Context(), client.ListOptions{Fields: fields})
		names := map[string]bool{}
		for _, e := range list {
			names[e.Name] = true
		}
		if err != nil || len(list) != want || len(names) != want {
			t.Errorf("%q: %d events, %d names, %v; want %d", fields, len(list), len(names), err, want)
		}
	}
	status, page := h.ask(h.admin, "GET", "/v1/events?fields=spec.reason=Failed", "")
	if items, _ := page["items"].([]any); status != http.StatusOK || len(items) != 0 || page["continue"] == nil {
		t.Errorf("%d %v: want an empty page that is continued", status, page)
	}
	next, _ := json.Marshal(map[string]any{"r": 1, "a": "machine.u7.80"})
	_, page = h.ask(h.admin, "GET", "/v1/events?limit=1&continue="+base64.RawURLEncoding.EncodeToString(next), "")
	if items, _ := page["items"].([]any); len(items) != 1 || items[0].(map[string]any)["name"] != "machine.u7.81" {
		t.Errorf("after a name: %v", page)
	}
}

// A watch of events begins with those that there are, and continues at another head where the first one ends, with each
// event once.
func TestEventsAreWatchedAtAnyHead(t *testing.T) {
	t.Parallel()
	a := newHead(t)
	b := a.twin()
	m := machine("m1")
	m.Status.State = trivet.MachineAvailable
	put(a, a.fleet.Machines, m)
	happen := func(i int) {
		if err := a.fleet.Quarantine(t.Context(), "m1", fmt.Sprint("noise ", i)); err != nil {
			t.Fatal(err)
		}
	}
	const before, all = 10, 100
	for i := range before {
		happen(i)
	}
	c := must(client.New(client.Config{Endpoints: []string{a.url, b.url}, Trust: a.keys.CA.Trust(), Token: a.admin}))(t)
	t.Cleanup(c.Close)
	seen, count, ended := map[int64]int{}, before, false
	for e, err := range c.Watch(t.Context(), client.WatchOptions{Kinds: []trivet.Kind{"Event"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == client.Put {
			seen[e.Record.(*trivet.Event).Spec.Seq]++
		}
		if len(seen) == all {
			break
		}
		if len(seen) == count && count < all {
			if count == all/2 && !ended {
				ended = true
				for _, h := range []*head{a, b} { // each open watch ends
					h.server.Close()
					h.listenAgain()
				}
			}
			happen(count)
			count++
		}
	}
	for seq := int64(1); seq <= all; seq++ {
		if seen[seq] != 1 {
			t.Errorf("event %d was received %d times", seq, seen[seq])
		}
	}
}
