package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// mute is a head whose process is stopped: the kernel accepts connections, and nothing responds.
func mute(t *testing.T) string { return tcpHead(t, func(net.Conn) {}) }

// resetter is a head that resets every connection.
func resetter(t *testing.T) string {
	return tcpHead(t, func(c net.Conn) {
		_ = c.(*net.TCPConn).SetLinger(0) // so that the close is a reset
		c.Close()
	})
}

func tcpHead(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return "https://" + l.Addr().String()
}

// stuck serves until silent is closed; then its open connections get no response.
func (c *cluster) stuck(serve http.HandlerFunc) (s server, silent chan struct{}) {
	silent = make(chan struct{})
	return c.head(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-silent:
			<-r.Context().Done()
			drop()
		default:
			serve(w, r)
		}
	}), silent
}

func healthOf(c *client.Client, url string) client.HeadHealth {
	all := c.Health()
	i := slices.IndexFunc(all, func(h client.HeadHealth) bool { return h.URL == url })
	if i < 0 {
		return client.HeadHealth{}
	}
	return all[i]
}

// A failed head is replaced within the call, whatever the failure, is not tried by the next one, and its state has the
// cause.
func TestFailedHeadIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	good := c.head(func(w http.ResponseWriter, r *http.Request) { answer(w, machine("m1", "")) })
	for name, bad := range map[string]string{
		"stopped": mute(t), "reset": resetter(t), "no listener": closedPort, "foreign": newCluster(t).head(nil).URL,
		"cuts every response": c.head(func(http.ResponseWriter, *http.Request) { drop() }).URL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := c.client(-1, bad, good.URL)
			machines := client.Of[trivet.Machine](cl)
			for range 3 {
				if _, err := machines.Get(t.Context(), "m1"); err != nil {
					t.Fatal(err)
				}
				if _, err := machines.Patch(t.Context(), "m1", []byte(`{}`), 0); err != nil {
					t.Fatal(err)
				}
			}
			h := healthOf(cl, bad)
			if h.State != client.HeadDown || h.Cause == nil || h.Requests != 1 || h.Failures != 1 || !h.Configured {
				t.Errorf("%+v", h)
			}
			if h := healthOf(cl, good.URL); h.State != client.HeadUp || h.Cause != nil || h.Requests != 6 ||
				h.Failures != 0 {
				t.Errorf("%+v", h)
			}
		})
	}
}

// A head that is stopped during a call delays that call by seconds and later ones not at all.
func TestHeadStopsResponding(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var first counter
	bad, silent := c.stuck(func(w http.ResponseWriter, r *http.Request) {
		first.add("")
		answer(w, machine("m1", ""))
	})
	good := c.head(func(w http.ResponseWriter, r *http.Request) { answer(w, machine("m2", "")) })
	cl := c.client(-1, bad.URL, good.URL)
	machines := client.Of[trivet.Machine](cl)
	if m, err := machines.Get(t.Context(), "m"); err != nil || m.Name != "m1" {
		t.Fatal(m, err)
	}
	close(silent)
	for range 3 {
		if m, err := machines.Get(t.Context(), "m"); err != nil || m.Name != "m2" {
			t.Fatal(m, err)
		}
	}
	if h := healthOf(cl, bad.URL); h.Failures != 1 || h.State != client.HeadDown {
		t.Errorf("%+v", h)
	}
}

// A head that does not respond may have carried out the request: a call that must not be repeated is not, and the error
// does not say that it failed.
func TestSilentHeadLeavesWriteInDoubt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	bad, silent := c.stuck(nil)
	close(silent)
	good := c.head(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/issue") {
			t.Error("a token is issued twice")
		}
		refuse(w, trivet.ErrUnavailable)
	})
	for name, call := range map[string]func(*client.Client) error{
		"once": func(cl *client.Client) error {
			_, err := cl.IssueToken(t.Context(), trivet.TokenRequest{Account: "a"})
			return err
		},
		"idempotent": func(cl *client.Client) error {
			_, err := client.Of[trivet.Machine](cl).Patch(t.Context(), "m", []byte(`{}`), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := call(c.client(-1, bad.URL, good.URL))
			if !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
}

// A balancer's "bad gateway" may mean that a head failed before it responded.
func TestBadGatewayLeavesWriteInDoubt(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	lb := c.head(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	_, err := c.client(-1, lb.URL).IssueToken(t.Context(), trivet.TokenRequest{Account: "a"})
	if !errors.Is(err, trivet.ErrUnknown) || errors.Is(err, trivet.ErrUnavailable) {
		t.Error(err)
	}
}

// A caller's own short deadlines must not keep all its calls at a silent head.
func TestShortDeadlinesLeaveSilentHead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	good := c.head(func(w http.ResponseWriter, r *http.Request) { answer(w, machine("m1", "")) })
	cl := c.client(-1, mute(t), good.URL)
	hurried, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := client.Of[trivet.Machine](cl).Get(hurried, "m1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := client.Of[trivet.Machine](cl).Get(short, "m1"); err != nil {
		t.Error(err)
	}
}

// Heads that respond that they cannot write are retried for a few seconds only with FailFast, not until RetryTimeout.
func TestNoLeaderEndsSoonForPeople(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		refuse(w, fmt.Errorf("%w: the cluster has no leader", trivet.ErrUnavailable))
	})
	cl, err := client.New(client.Config{Endpoints: []string{h.URL}, Trust: c.keys.CA.Trust(), FailFast: true,
		RetryTimeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = client.Of[trivet.Machine](cl).Create(ctx, machine("m1", ""))
	if !errors.Is(err, trivet.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("%v (%v)", err, ctx.Err())
	}
}

// With every head down, a call with FailFast returns the cause of each at once; another one waits for the first head
// that returns.
func TestAllHeadsAreDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	a, b := resetter(t), "https://"+testhead.NewAddress()+":7480" // no other program takes the port meanwhile
	cfg := client.Config{Endpoints: []string{a, b}, Trust: c.keys.CA.Trust(), FailFast: true, RetryTimeout: time.Hour}
	cl, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	_, err = client.Of[trivet.Machine](cl).Get(t.Context(), "m1")
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), a) ||
		!strings.Contains(err.Error(), b) {
		t.Errorf("fails fast: %v", err)
	}
	for _, err = range cl.Watch(t.Context(), client.WatchOptions{}) {
	}
	if !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("a watch that has not begun: %v", err)
	}
	waiting := c.client(time.Hour, a, b)
	got := make(chan error)
	go func() {
		_, err := client.Of[trivet.Machine](waiting).Get(t.Context(), "m1")
		got <- err
	}()
	for healthOf(waiting, b).Failures == 0 {
		time.Sleep(time.Millisecond)
	}
	c.headAt(strings.TrimPrefix(b, "https://"), func(w http.ResponseWriter, _ *http.Request) {
		answer(w, machine("m1", ""))
	})
	if err := <-got; err != nil {
		t.Errorf("waiting: %v", err)
	}
}

// A client with one endpoint learns the other heads, and needs them only when that one is gone.
func TestHeadsAreLearnedFromAnswers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	other := c.head(func(w http.ResponseWriter, r *http.Request) { answer(w, machine("m2", "")) })
	gone := make(chan struct{})
	lb := c.head(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-gone:
			drop()
		default:
		}
		w.Header().Set(trivet.HeaderHeads, strings.Join([]string{other.URL, "https://192.0.2.1:7480"}, ","))
		answer(w, machine("m1", ""))
	})
	cl := c.client(time.Minute, lb.URL)
	machines := client.Of[trivet.Machine](cl)
	for range 3 {
		if m, err := machines.Get(t.Context(), "m"); err != nil || m.Name != "m1" {
			t.Fatal(m, err)
		}
	}
	if got := cl.Endpoints(); !slices.Equal(got, []string{lb.URL, other.URL, "https://192.0.2.1:7480"}) {
		t.Error(got)
	}
	close(gone)
	if m, err := machines.Get(t.Context(), "m"); err != nil || m.Name != "m2" {
		t.Error(m, err)
	}
}

// The revision that a client has seen is sent to every head, until the cluster has another history.
func TestRevisionIsSentToEveryHead(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	var asked counter
	revisions := []string{"7", "5", "9", "3", "4"} // 5: as if another response had been faster; 3: less than requested
	h := c.head(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/machines/m1" { // the check of a head that failed, at a time of its own
			return
		}
		n := asked.add(r.Header.Get(trivet.HeaderRevision))
		w.Header().Set(trivet.HeaderRevision, revisions[n-1])
		if n == 2 {
			refuse(w, trivet.ErrUnavailable)
			return
		}
		answer(w, machine("m1", ""))
	})
	cl, err := client.New(client.Config{Endpoints: []string{h.URL}, Trust: c.keys.CA.Trust(), Fresh: true,
		RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for range revisions {
		_, _ = client.Of[trivet.Machine](cl).Get(t.Context(), "m1") // the second fails
	}
	if got, want := asked.all(), []string{trivet.RevisionLatest, "7", "7", "9", "3"}; !slices.Equal(got, want) {
		t.Errorf("asked %q; want %q", got, want)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	good := c.head(func(w http.ResponseWriter, r *http.Request) { answer(w, machine("m1", "")) })
	bad := closedPort
	cl := c.client(-1, bad, good.URL)
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(cl.Collector())
	if _, err := client.Of[trivet.Machine](cl).Get(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"trivet_client_head_up " + good.URL: 1, "trivet_client_head_up " + bad: 0, "trivet_client_requests_total " +
			good.URL: 1,
		"trivet_client_failures_total " + good.URL: 0, "trivet_client_failures_total " + bad: 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %v; want %v", name, got[name], want)
		}
	}
}
