package client_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func TestAnyHeadServes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	good := c.head(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token" {
			refuse(w, trivet.ErrUnauthenticated)
			return
		}
		answer(w, machine("m1", "u"))
	})
	var asked counter
	unready := c.head(func(w http.ResponseWriter, r *http.Request) {
		asked.add(r.URL.Path)
		refuse(w,
			trivet.ErrUnavailable)
	})
	foreign := newCluster(t).head(func(http.ResponseWriter, *http.Request) {
		t.Error("a foreign server was sent the token")
	})
	cl := c.client(-1, closedPort, unready.URL, foreign.URL, good.URL)
	for range 3 {
		m, err := client.Of[trivet.Machine](cl).Get(t.Context(), "m1")
		if err != nil || m.Name != "m1" {
			t.Fatal(m, err)
		}
	}
	calls := slices.DeleteFunc(asked.all(), func(path string) bool { return path == "/readyz" }) // its monitor's
	if len(calls) != 1 {
		t.Errorf("the unready head was asked %d times; the one that serves must be asked first", len(calls))
	}
}

func TestNoHeadServes(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	_, err := client.Of[trivet.Machine](c.client(-1, closedPort)).Get(t.Context(), "m1")
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("no listener: %v", err)
	}
	foreign := newCluster(t).head(func(http.ResponseWriter, *http.Request) {})
	_, err = client.Of[trivet.Machine](c.client(time.Hour, foreign.URL)).Get(t.Context(), "m1")
	if !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("foreign servers only: %v", err)
	}
	_, err = client.Of[trivet.Machine](c.client(-1, foreign.URL, closedPort)).Get(t.Context(), "m1")
	if !errors.Is(err, trivet.ErrUnavailable) || errors.Is(err, trivet.ErrUnauthenticated) ||
		!strings.Contains(err.Error(), foreign.URL) {
		t.Errorf("a foreign server and no listener: %v", err)
	}
	lossy := c.head(func(http.ResponseWriter, *http.Request) { drop() })
	_, err = client.Of[trivet.Machine](c.client(-1, foreign.URL, lossy.URL)).Patch(t.Context(), "m1", []byte(`{}`), 0)
	if !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("a foreign server and no response: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cut := c.head(func(http.ResponseWriter, *http.Request) { cancel(); drop() })
	_, err = client.Of[trivet.Machine](c.client(time.Hour, cut.URL)).Patch(ctx, "m1", []byte(`{}`), 0)
	if !errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("sent, no response, timed out: %v", err)
	}
}

// If a head fails before it responds, the caller still finds out whether the stored record is its own.
func TestCreateWithLostResponse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, mine := range []bool{true, false} {
		var posts counter
		h := c.head(func(w http.ResponseWriter, r *http.Request) {
			uid := r.Header.Get(trivet.HeaderIdempotencyKey)
			switch {
			case r.Method == http.MethodPost && posts.add(uid) == 1:
				drop()
			case r.Method == http.MethodPost:
				refuse(w, trivet.ErrExists)
			case mine:
				answer(w, machine("m1", posts.all()[0]))
			default:
				answer(w, machine("m1", "another"))
			}
		})
		m, err := client.Of[trivet.Machine](c.client(time.Minute, h.URL)).Create(t.Context(), machine("m1", ""))
		if mine && (err != nil || m.UID != posts.all()[0]) || !mine && !errors.Is(err, trivet.ErrExists) {
			t.Errorf("mine %v: %v, %v", mine, m, err)
		}
		if keys := posts.all(); len(keys) != 2 || keys[0] != keys[1] || len(keys[0]) != 32 {
			t.Errorf("keys of the attempts: %v", keys)
		}
	}
}

func TestDeleteWithLostResponse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var deletes counter
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		if deletes.add("") == 1 {
			drop()
		}
		refuse(w, trivet.ErrNotFound)
	})
	machines := client.Of[trivet.Machine](c.client(time.Minute, h.URL))
	if err := machines.Delete(t.Context(), "m1"); err != nil {
		t.Errorf("after a lost response: %v", err)
	}
	if err := machines.Delete(t.Context(), "m1"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("plain: %v", err)
	}
}

// A change that may have been made before another client's is neither rejected nor made again.
func TestPatchWithLostResponse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var patches counter
	var made atomic.Bool
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		switch m := machine("m1", ""); {
		case r.Method != http.MethodPatch:
			m.Spec.Cordoned = made.Load() && len(patches.all()) > 0
			answer(w, m)
		case patches.add(r.Header.Get("If-Match"))%2 == 1:
			drop()
		case r.Header.Get("If-Match") == "7":
			refuse(w, trivet.ErrConflict)
		default:
			answer(w, machine("m1", ""))
		}
	})
	machines := client.Of[trivet.Machine](c.client(time.Minute, h.URL))
	hold := func(m *trivet.Machine) error { m.Spec.Cordoned = true; return nil }
	made.Store(true)
	if m, err := machines.Modify(t.Context(), "m1", hold); err != nil || !m.Spec.Cordoned || len(patches.all()) != 2 {
		t.Errorf("that was made: %v after %d attempts", err, len(patches.all()))
	}
	made.Store(false)
	_, err := machines.Modify(t.Context(), "m1", hold)
	if !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrConflict) || len(patches.all()) != 4 {
		t.Errorf("of one revision: %v after %d attempts", err, len(patches.all())-2)
	}
	if _, err := machines.Patch(t.Context(), "m1", []byte(`{}`), 0); err != nil || len(patches.all()) != 6 {
		t.Errorf("of any revision: %v after %d attempts", err, len(patches.all())-4)
	}
	if _, err = machines.Once().Patch(t.Context(), "m1", []byte(`{}`), 0); !errors.Is(err, trivet.ErrUnknown) ||
		len(patches.all()) != 7 {
		t.Errorf("once: %v after %d attempts", err, len(patches.all())-6)
	}
}

// With Once, no write is sent twice.
func TestOnceAppliesToEveryWrite(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var changes counter
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			changes.add(r.Method)
		}
		drop()
	})
	machines := client.Of[trivet.Machine](c.client(time.Second, h.URL)).Once()
	_, created := machines.Create(t.Context(), machine("m1", ""))
	_, updated := machines.Update(t.Context(), machine("m1", ""))
	_, patched := machines.Patch(t.Context(), "m1", []byte(`{}`), 0)
	for _, err := range []error{created, updated, patched, machines.Delete(t.Context(), "m1")} {
		if !errors.Is(err, trivet.ErrUnknown) {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"POST", "PUT", "PATCH", "DELETE"}, changes.all()); diff != "" {
		t.Error(diff)
	}
}

// A verb that may have been carried out is not retried: another client may have requested the opposite since.
func TestMachineVerbWithLostResponse(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for name, verb := range map[string]func(*client.Client) error{
		"accept":     func(cl *client.Client) error { return cl.Accept(t.Context(), "m1") },
		"forget":     func(cl *client.Client) error { return cl.Forget(t.Context(), "m1") },
		"quarantine": func(cl *client.Client) error { return cl.Quarantine(t.Context(), "m1", "noise") },
		"release": func(cl *client.Client) error {
			return cl.Release(t.Context(), "m1", trivet.ReleaseRequest{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sent counter
			h := c.head(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method != http.MethodPost:
				case sent.add(r.URL.Path) == 1:
					drop()
				case len(sent.all()) == 2:
					refuse(w, trivet.ErrConflict)
				}
			})
			cl := c.client(time.Minute, closedPort, h.URL)
			err := verb(cl)
			var detailed *trivet.Error
			if !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrConflict) || !errors.As(err, &detailed) ||
				detailed.Hint == "" {
				t.Errorf("its response is lost: %v", err)
			}
			if n := len(sent.all()); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
			sent.add("")
			if err := verb(cl); err != nil {
				t.Errorf("nothing is lost: %v", err)
			}
		})
	}
}

func TestListGathersPages(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var asked counter
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		asked.add(r.URL.RawQuery)
		if r.URL.Query().Get("continue") == "" {
			answer(w, map[string]any{"items": []any{machine("m1", "")}, "revision": 40, "continue": "c1"})
			return
		}
		answer(w, map[string]any{"items": []any{machine("m2", "")}, "revision": 40})
	})
	list, revision, err := client.Of[trivet.Machine](c.client(-1, h.URL)).List(t.Context(),
		client.ListOptions{Labels: "a=b", Page: 1})
	if err != nil || revision != 40 || len(list) != 2 || list[1].Name != "m2" {
		t.Fatal(list, revision, err)
	}
	if diff := cmp.Diff([]string{"labels=a%3Db&limit=1", "continue=c1&labels=a%3Db&limit=1"}, asked.all()); diff != "" {
		t.Error(diff)
	}
}

// Properties that the program does not know are not in the patch, so they are not lost.
func TestModifySendsOnlyWhatChanged(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var patches counter
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			body := make([]byte, r.ContentLength)
			r.Body.Read(body)
			if patches.add(r.Header.Get("If-Match")+" "+string(body)) == 1 {
				refuse(w, trivet.ErrConflict)
				return
			}
		}
		answer(w, map[string]any{"kind": "Machine", "name": "m1", "revision": 7,
			"spec": map[string]any{"rack": "r1", "newer": 1}})
	})
	_, err := client.Of[trivet.Machine](c.client(-1, h.URL)).Modify(t.Context(), "m1", func(m *trivet.Machine) error {
		m.Spec.Cordoned, m.Spec.Rack = true, ""
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `7 {"spec":{"cordoned":true,"rack":null}}`
	if diff := cmp.Diff([]string{want, want}, patches.all()); diff != "" {
		t.Error(diff)
	}
}

func TestHeadsAreNeverForgotten(t *testing.T) {
	t.Parallel()
	cl := newCluster(t).client(-1, "a:1", "b:1")
	for _, learned := range [][]string{nil, {"http://plain:1"}, {"c:1", "https://d:1/"}, {}} {
		cl.Learn(learned)
	}
	got := cl.Endpoints()
	slices.Sort(got)
	if s := strings.Join(got, " "); s != "https://a:1 https://b:1 https://c:1 https://d:1" {
		t.Error(s)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	pin := newCluster(t).keys.CA.Trust()
	for _, cfg := range []client.Config{
		{Trust: pin}, {Endpoints: []string{"http://h:1"}, Trust: pin},
		{Endpoints: []string{"https://h/path"}, Trust: pin},
		{Endpoints: []string{"https://u:p@h"}, Trust: pin}, {Endpoints: []string{"h"}},
		{Endpoints: []string{"h"}, Trust: "x"},
	} {
		if _, err := client.New(cfg); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// A head that was stopped accepts connections and does not respond: it is left for another one. That a probe decides is
// in TestProbeOfWaitingCalls.
func TestStoppedHeadIsLeft(t *testing.T) {
	t.Parallel()
	c, end := newCluster(t), make(chan struct{})
	var received counter
	stopped := c.head(func(_ http.ResponseWriter, r *http.Request) {
		received.add(r.URL.Path)
		<-end
	})
	t.Cleanup(func() { close(end) }) // before the heads are closed
	good := c.head(func(w http.ResponseWriter, _ *http.Request) { answer(w, machine("m1", "u")) })
	machines := client.Of[trivet.Machine](c.client(-1, stopped.URL, good.URL))
	_, err := machines.Patch(t.Context(), "m1", []byte(`{}`), 0)
	if got := received.all(); err != nil || len(got) == 0 || got[0] != "/v1/machines/m1" {
		t.Errorf("the head that was stopped received %v: %v", got, err)
	}
}
