package api_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// A client that writes at one head and sends the response's revision reads its write at another one at once.
func TestReadAfterWriteAtAnotherHead(t *testing.T) {
	t.Parallel()
	a := newHead(t)
	b := a.twin()
	for i := range 100 {
		name := fmt.Sprintf("m%d", i)
		resp := a.do(a.admin, "POST", "/v1/machines", `{"name":"`+name+`"}`)
		resp.Body.Close()
		seen := trivet.HeaderRevision + ": " + resp.Header.Get(trivet.HeaderRevision)
		if status, got := b.ask(b.admin, "GET", "/v1/machines/"+name, "", seen); status != http.StatusOK {
			t.Fatalf("%s, sending %q: %d %v", name, seen, status, got)
		}
		if status, got := b.ask(b.admin, "GET", "/v1/machines/"+name, "",
			trivet.HeaderRevision+": "+trivet.RevisionLatest); status != http.StatusOK {
			t.Fatalf("%s, requesting the latest: %d %v", name, status, got)
		}
	}
}

// A head that does not have the revision that the client has seen waits for it, for a record and for a list's next
// page.
func TestHeadBehindWaits(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	at := func(ahead int64) string { return strconv.FormatInt(h.fleet.Store.Revision()+ahead, 10) }
	page := func() string {
		text, _ := json.Marshal(map[string]any{"r": h.fleet.Store.Revision() + 1, "a": "a"})
		return "/v1/machines?continue=" + base64.RawURLEncoding.EncodeToString(text)
	}
	for name, ask := range map[string]func() (int, map[string]any){
		"get": func() (int, map[string]any) {
			return h.ask(h.admin, "GET", "/v1/machines/get", "", trivet.HeaderRevision+": "+at(1))
		},
		"list": func() (int, map[string]any) { return h.ask(h.admin, "GET", page(), "") },
	} {
		t.Run(name, func(t *testing.T) {
			type response struct {
				status int
				body   map[string]any
			}
			got := make(chan response)
			go func() {
				status, body := ask()
				got <- response{status, body}
			}()
			select {
			case early := <-got:
				t.Fatalf("it did not wait: %+v", early)
			case <-time.After(50 * time.Millisecond): // most likely it has arrived and waits
			}
			put(h, h.fleet.Machines, machine(name))
			if a := <-got; a.status != http.StatusOK {
				t.Errorf("%+v", a)
			} else if text := fmt.Sprint(a.body); !strings.Contains(text, name) {
				t.Errorf("it does not show %s: %s", name, text)
			}
		})
	}
}

// Without a leader a head serves its copy and marks the response as stale; it refuses a request for the latest
// revision.
func TestHeadWithoutLeaderMarksResponsesStale(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	get := func(want string) *http.Response {
		resp := h.do(h.admin, "GET", "/v1/machines", "", trivet.HeaderRevision+": "+want)
		resp.Body.Close()
		return resp
	}
	if resp := get(trivet.RevisionLatest); resp.StatusCode != http.StatusOK ||
		resp.Header.Get(trivet.HeaderStale) != "" {
		t.Errorf("with a leader: %d, stale %q", resp.StatusCode, resp.Header.Get(trivet.HeaderStale))
	}
	h.member.Close()
	if resp := get(trivet.RevisionLatest); resp.StatusCode != http.StatusServiceUnavailable ||
		resp.Header.Get(trivet.HeaderRevision) != "" {
		t.Errorf("the latest: %d, revision %q", resp.StatusCode, resp.Header.Get(trivet.HeaderRevision))
	}
	// It still takes its member for ready: only that the copy was not confirmed for long marks it.
	err := sleepUntil(t.Context(), func() bool {
		resp := get("1")
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("an old revision: %d", resp.StatusCode)
		}
		return resp.Header.Get(trivet.HeaderStale) == "true"
	})
	if err != nil {
		t.Errorf("an old revision is not marked as stale: %v", err)
	}
}

// A revision that the cluster never had is of another history: the response has a lower one, which the client then
// sends.
func TestRevisionOfAnotherHistory(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	now := h.fleet.Store.Revision()
	resp := h.do(h.admin, "GET", "/v1/machines", "", fmt.Sprintf("%s: %d", trivet.HeaderRevision, now+1000))
	resp.Body.Close()
	if got := resp.Header.Get(trivet.HeaderRevision); resp.StatusCode != http.StatusOK ||
		got != strconv.FormatInt(now, 10) {
		t.Errorf("%d, revision %q; want %d", resp.StatusCode, got, now)
	}
	if status, got := h.ask(h.admin, "GET", "/v1/machines", "", trivet.HeaderRevision+": yesterday"); status != 422 {
		t.Errorf("%d %v", status, got)
	}
}

// A token that one head has just issued is valid at all of them.
func TestTokenIsValidAtAllHeads(t *testing.T) {
	t.Parallel()
	a := newHead(t)
	b := a.twin()
	for i := range 50 {
		token := a.account(fmt.Sprintf("account-%d", i), "viewer")
		if status, got := b.ask(token, "GET", "/v1/whoami", ""); status != http.StatusOK {
			t.Fatalf("token %d: %d %v", i, status, got)
		}
	}
	if status, _ := b.ask(a.admin[:len(a.admin)-1]+"x", "GET", "/v1/whoami", ""); status != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", status)
	}
}

// Authenticated callers learn all heads that serve, others none.
func TestCallersLearnTheHeads(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	for name, rec := range map[string]trivet.Head{
		"head0": {Status: trivet.HeadStatus{API: []string{h.url}}},
		"head1": {Status: trivet.HeadStatus{API: []string{"https://10.0.0.2:7480"}}},
		"gone": {Spec: trivet.HeadSpec{Remove: true},
			Status: trivet.HeadStatus{API: []string{"https://10.0.0.3:7480"}}},
	} {
		rec.Name, rec.Kind = name, "Head"
		put(h, h.fleet.Heads, &rec)
	}
	want := h.url + ",https://10.0.0.2:7480"
	for token, want := range map[string]string{h.admin: want, "": ""} {
		resp := h.do(token, "GET", "/v1/machines", "")
		resp.Body.Close()
		if got := resp.Header.Get(trivet.HeaderHeads); got != want {
			t.Errorf("token %t: %q; want %q", token != "", got, want)
		}
	}
}

// A watch at a head that is cut off from the others ends: the head receives no changes, and another one may.
func TestWatchAtCutOffHeadEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for heartbeats")
	}
	h := newHead(t)
	resp := h.do(h.admin, "GET", "/v1/watch?kinds=machines", "")
	defer resp.Body.Close()
	h.isCutOff.Store(true)
	var got []string
	for lines := bufio.NewScanner(resp.Body); len(got) < 3; {
		if !lines.Scan() {
			t.Fatal(got, lines.Err())
		}
		if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			got = append(got, event)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint([]string{trivet.WatchSynced, trivet.WatchBookmark, trivet.WatchDrain}) {
		t.Error(got)
	}
}
