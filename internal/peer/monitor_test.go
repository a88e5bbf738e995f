package peer

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

// fakeHead is another head, which responds to pings only.
type fakeHead struct {
	info Info
	err  error
	url  string
}

func (h *fakeHead) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if h.err != nil {
		status, problem := apitypes.NewProblem(h.err)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(problem) // the test fails without it
		return
	}
	_ = json.NewEncoder(w).Encode(h.info) // the same
}

func (h *fakeHead) heads() map[string]string { return map[string]string{"head1": h.url} }

// newMonitor returns the monitor of a head that knows one other.
func newMonitor(t *testing.T, log *bytes.Buffer) (*Monitor, *fakeHead) {
	t.Helper()
	keys, err := auth.Init(filepath.Join(t.TempDir(), "keys"), "c1")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHead{url: "https://" + l.Addr().String()}
	cert := keys.CA.ServerCert(func() []string { return []string{"127.0.0.1"} }, time.Now)
	s := &http.Server{Handler: h, TLSConfig: cert.TLS()}
	t.Cleanup(func() { s.Close() })
	go func() { _ = s.ServeTLS(l, "", "") }() // until it is closed
	none := func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	root := func() *auth.Root { return &keys.CA.Root }
	client := NewClient(none, root, func() Info { return Info{Head: "head0"} })
	t.Cleanup(client.Close)
	return NewMonitor(client, h.heads, slog.New(slog.NewTextHandler(log, nil))), h
}

// A clock that is off is logged once; a head that does not respond is not healthy; the lag of one is measured.
func TestMonitor(t *testing.T) {
	var log bytes.Buffer
	m, h := newMonitor(t, &log)
	h.info = Info{Head: "head1", Time: time.Now().Add(5 * time.Minute), Revision: 7}
	for range 2 {
		m.ping(t.Context(), "head1", h.url, 10)
	}
	s := m.Statuses()["head1"]
	if s.Err != nil || s.Lag != 3 || s.Skew.Round(time.Minute) != 5*time.Minute || s.HealthySince.IsZero() ||
		s.LastHeard.IsZero() {
		t.Errorf("status %+v", s)
	}
	if n := strings.Count(log.String(), "NTP"); n != 1 {
		t.Errorf("the clock is logged %d times:\n%s", n, log.String())
	}
	h.err = trivet.ErrUnavailable
	m.ping(t.Context(), "head1", h.url, 10)
	if s := m.Statuses()["head1"]; !errors.Is(s.Err, trivet.ErrUnavailable) || !s.HealthySince.IsZero() ||
		s.LastHeard.IsZero() {
		t.Errorf("status %+v of a head that is down", s)
	}
	h.err = nil
	h.info.Time = time.Now()
	m.ping(t.Context(), "head1", h.url, 7)
	if s := m.Statuses()["head1"]; s.Err != nil || s.Lag != 0 || s.Skew != 0 ||
		time.Since(s.HealthySince) > time.Minute {
		t.Errorf("status %+v of a head that is back", s)
	}
	h.err = &trivet.Error{Op: "ping", Err: trivet.ErrForbidden}
	m.ping(t.Context(), "head1", h.url, 7)
	select {
	case err := <-m.removed:
		if !errors.Is(err, trivet.ErrForbidden) {
			t.Error(err)
		}
	default:
		t.Error("the monitor does not report the removal")
	}
}

// A head that is not healthy starts its healthy time again.
func TestMonitorHealthySince(t *testing.T) {
	m, h := newMonitor(t, &bytes.Buffer{})
	started := time.Now().Add(-time.Hour)
	healthy := Info{Head: "head1", Leader: "1", Started: started, Revision: 1000}
	var since time.Time
	for _, tc := range []struct {
		name   string
		change func()
		kept   bool // since the time before
	}{
		{"first response", func() {}, false},
		{"second response", func() {}, true},
		{"lags a little", func() { h.info.Revision -= MaxLag }, true},
		{"lags", func() { h.info.Revision -= MaxLag + 1 }, false},
		{"still lags", func() { h.info.Revision -= MaxLag + 1 }, false},
		{"has caught up", func() {}, true},
		{"knows no leader", func() { h.info.Leader = "" }, false},
		{"knows it again", func() {}, true},
		{"restarted", func() { healthy.Started = started.Add(time.Second); h.info = healthy }, false},
		{"responds again", func() {}, true},
	} {
		h.info = healthy
		tc.change()
		m.ping(t.Context(), "head1", h.url, 1000)
		s := m.Statuses()["head1"]
		if s.Err != nil || s.HealthySince.Equal(since) != tc.kept {
			t.Errorf("%s: since %s, before %s, %v", tc.name, s.HealthySince, since, s.Err)
		}
		since = s.HealthySince
	}
}
