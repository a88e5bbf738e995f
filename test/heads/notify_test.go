package heads_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// sink is the receiver of a webhook. It acknowledges some requests and refuses others.
type sink struct {
	*testing.T
	mu       sync.Mutex
	requests int
	refuse   int               // guarded by mu, as all here: each of so many requests is answered by 500; 0: none
	ids      map[string]string // by subject of the event
	order    []string          // the subjects, each when it was acknowledged first
	repeated int               // acknowledged again
}

// newSink starts a receiver on an address of its own, and returns its URL.
func newSink(t *testing.T) (*sink, string) {
	s := &sink{T: t, ids: map[string]string{}}
	l, err := net.Listen("tcp", testhead.NewAddress()+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: s}}
	server.Start()
	t.Cleanup(server.Close)
	return s, server.URL + "/hook"
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m struct{ ID, Subject, Type string }
	if err := json.Unmarshal(body, &m); err != nil || m.ID != r.Header.Get("webhook-id") ||
		!strings.HasPrefix(r.Header.Get("webhook-signature"), "v1,") {
		s.Errorf("%s %v: %s", r.Header, err, body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests++
	if s.refuse > 0 && s.requests%s.refuse == 0 {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	id, again := s.ids[m.Subject]
	switch {
	case !again:
		s.ids[m.Subject], s.order = m.ID, append(s.order, m.Subject)
	case id != m.ID:
		s.Errorf("the event of %s has the IDs %s and %s", m.Subject, id, m.ID)
	default:
		s.repeated++
	}
}

func (s *sink) acknowledged() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order)
}

func (s *sink) refuseEach(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = n
}

// The head that delivers is killed in the middle, twice, and then all heads at once; the receiver refuses some requests
// and then all for a while. Every event arrives, in the order in which they happened, and each always with the same ID.
func TestNotificationsWhileHeadsAreKilled(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	heads := map[string]*head{"head0": h0, "head1": h0.join("head1"), "head2": h0.join("head2")}
	l.cl = h0.client(heads["head0"], heads["head1"], heads["head2"])
	receiver, url := newSink(t)
	h0.MustTrivet("apply", "-f", "../../docs/examples/notifier.yaml")
	notifiers := client.Of[trivet.Notifier](l.cl)
	patch := fmt.Appendf(nil, `{"spec":{"events":["Quarantined"],"webhook":{"url":%q}}}`, url)
	if _, err := notifiers.Patch(t.Context(), "ops", patch, 0); err != nil {
		t.Fatal(err)
	}
	const count, more = 90, 10
	l.fill(count + more)
	holder := func() string {
		n, err := notifiers.Get(t.Context(), "ops")
		if err != nil {
			t.Fatal(err)
		}
		return n.Status.Head
	}
	h0.Await("a head delivers", func() error {
		if holder() == "" {
			return fmt.Errorf("none")
		}
		return nil
	})
	receiver.refuseEach(7)
	var want []string
	var killed []string
	for i := range count {
		name := fmt.Sprint("fill", i)
		if err := l.cl.Quarantine(t.Context(), name, "test"); err != nil {
			t.Fatal(err)
		}
		want = append(want, "machine/"+name)
		switch i {
		case 30, 60:
			h0.Await("some events are delivered", func() error {
				if got := len(receiver.acknowledged()); got < i/2 {
					return fmt.Errorf("%d of %d", got, i)
				}
				return nil
			})
			if i == 60 {
				heads[killed[0]].Up()
				receiver.refuseEach(1)
			}
			at := holder()
			heads[at].Kill()
			killed = append(killed, at)
		case 75:
			receiver.refuseEach(0)
		}
	}
	arrived := func(n int) {
		t.Helper()
		h0.Await("all events are delivered", func() error {
			if got := len(receiver.acknowledged()); got < n {
				return fmt.Errorf("%d of %d", got, n)
			}
			return nil
		})
		if got := receiver.acknowledged(); !slices.Equal(got, want) {
			t.Errorf("received %v", got)
		}
	}
	arrived(count)
	t.Logf("killed %v; %d of %d requests were repetitions", killed, receiver.repeated, receiver.requests)
	h0.Await("the record says so", func() error {
		n, err := notifiers.Get(t.Context(), "ops")
		if err == nil && (n.Status.State != trivet.NotifierActive || len(n.Status.Pending) > 0 || n.Status.Dropped > 0 ||
			n.Status.Delivered < count || slices.Contains(killed[1:], n.Status.Head)) {
			err = fmt.Errorf("the status is %+v", n.Status)
		}
		return err
	})

	heads[killed[1]].Up()
	receiver.refuseEach(1)
	for i := count; i < count+more; i++ {
		if err := l.cl.Quarantine(t.Context(), fmt.Sprint("fill", i), "test"); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint("machine/fill", i))
	}
	for _, h := range heads {
		h.Kill()
	}
	receiver.refuseEach(0)
	for _, h := range heads {
		h.Start()
	}
	for _, h := range heads {
		h.AwaitReady()
	}
	arrived(count + more)
}
