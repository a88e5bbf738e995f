package heads

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/auth"
)

// greeter is another head, as far as greetings go.
type greeter struct {
	says Greeting
	err  error
	url  string
}

func (o *greeter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if o.err != nil {
		status, problem := apitypes.NewProblem(o.err)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(problem) // the test sees that it is missing
		return
	}
	_ = json.NewEncoder(w).Encode(o.says) // the same
}

// circleOf makes the circle of a head that knows one other.
func circleOf(t *testing.T, log *bytes.Buffer) (*Circle, *greeter) {
	t.Helper()
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &greeter{url: "https://" + l.Addr().String()}
	s := &http.Server{Handler: o, TLSConfig: keys.CA.ServerCert(func() []string { return []string{"127.0.0.1"} }, time.Now).TLS()}
	t.Cleanup(func() { s.Close() })
	go func() { _ = s.ServeTLS(l, "", "") }() // until it is closed
	none := func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	caller := NewCaller(none, func() *auth.Root { return &keys.CA.Root }, func() Greeting { return Greeting{Head: "head0"} })
	t.Cleanup(caller.Close)
	return NewCircle(nil, caller, slog.New(slog.NewTextHandler(log, nil))), o
}

// A clock that is off is told once; a head that goes is no longer stable; one that lags is seen to.
func TestCircleSees(t *testing.T) {
	var log bytes.Buffer
	c, o := circleOf(t, &log)
	head := &trivet.Head{Meta: trivet.Meta{Name: "head1"}, Status: trivet.HeadStatus{Peer: o.url}}
	o.says = Greeting{Head: "head1", Time: time.Now().Add(5 * time.Minute), Revision: 7}
	for range 2 {
		c.look(t.Context(), head, 10)
	}
	s := c.Sights()["head1"]
	if s.Err != nil || s.Lag != 3 || s.Skew.Round(time.Minute) != 5*time.Minute || s.Since.IsZero() || s.Heard.IsZero() {
		t.Errorf("it sees %+v", s)
	}
	if n := strings.Count(log.String(), "NTP"); n != 1 {
		t.Errorf("the clock is told of %d times:\n%s", n, log.String())
	}
	o.err = trivet.ErrUnavailable
	c.look(t.Context(), head, 10)
	if s := c.Sights()["head1"]; !errors.Is(s.Err, trivet.ErrUnavailable) || !s.Since.IsZero() || s.Heard.IsZero() {
		t.Errorf("it sees %+v in one that is down", s)
	}
	o.err = nil
	o.says.Time = time.Now()
	c.look(t.Context(), head, 7)
	if s := c.Sights()["head1"]; s.Err != nil || s.Lag != 0 || s.Skew != 0 || time.Since(s.Since) > time.Minute {
		t.Errorf("it sees %+v in one that is back", s)
	}
	o.err = removed("head0")
	c.look(t.Context(), head, 7)
	select {
	case err := <-c.out:
		if !errors.Is(err, trivet.ErrForbidden) {
			t.Error(err)
		}
	default:
		t.Error("it does not notice that it was removed")
	}
}

// What is not well with a head begins its good time anew.
func TestCircleSeesWhoIsStable(t *testing.T) {
	c, o := circleOf(t, &bytes.Buffer{})
	head := &trivet.Head{Meta: trivet.Meta{Name: "head1"}, Status: trivet.HeadStatus{Peer: o.url}}
	began := time.Now().Add(-time.Hour)
	well := Greeting{Head: "head1", Leader: "1", Started: began, Revision: 1000}
	var since time.Time
	for _, tc := range []struct {
		what   string
		does   func()
		stable bool // since the time before
	}{
		{"it is there", func() {}, false},
		{"it is still there", func() {}, true},
		{"it lags a little", func() { o.says.Revision -= MaxLag }, true},
		{"it lags", func() { o.says.Revision -= MaxLag + 1 }, false},
		{"it lags still", func() { o.says.Revision -= MaxLag + 1 }, false},
		{"it has caught up", func() {}, true},
		{"it knows no leader", func() { o.says.Leader = "" }, false},
		{"it does again", func() {}, true},
		{"it was started anew", func() { well.Started = began.Add(time.Second); o.says = well }, false},
		{"and stays", func() {}, true},
	} {
		o.says = well
		tc.does()
		c.look(t.Context(), head, 1000)
		s := c.Sights()["head1"]
		if s.Err != nil || s.Since.Equal(since) != tc.stable {
			t.Errorf("%s: since %s, before %s, %v", tc.what, s.Since, since, s.Err)
		}
		since = s.Since
	}
}
