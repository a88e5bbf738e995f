package replica_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/replica"
	"github.com/trivet-project/trivet/internal/runlog"
)

func (s *site) newLogs(h *head) *replica.Logs {
	own := must(runlog.Open(s.t.TempDir(), 0, nil))(s.t)
	s.t.Cleanup(func() { own.Close() })
	c := peer.NewClient(func() (*tls.Certificate, error) { return h.cert, nil },
		func() *auth.Root { return &s.keys.CA.Root }, nil)
	s.t.Cleanup(c.Close)
	return &replica.Logs{Self: h.name, Store: own, Tables: s.tables, Client: c}
}

func (h *head) appendLog(offset int64, text string) {
	h.site.t.Helper()
	if err := h.logs.Store.Append("default/w", loggedKey, offset, []byte(text)); err != nil {
		h.site.t.Fatal(err)
	}
}

// readAll returns what a view can read of one part from its start, with dots for gaps.
func readAll(t *testing.T, v *replica.LogView) string {
	t.Helper()
	var text []byte
	buf := make([]byte, replica.LogChunkBytes)
	for {
		n, err := v.Read(t.Context(), loggedKey, int64(len(text)), buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return strings.ReplaceAll(string(text), "\x00", ".")
		}
		text = append(text, buf[:n]...)
	}
}

func refresh(t *testing.T, v *replica.LogView, latest bool) {
	t.Helper()
	if err := v.Refresh(t.Context(), latest); err != nil {
		t.Fatal(err)
	}
}

var loggedKey = trivet.LogKey{Action: "a", Epoch: 1, Attempt: 1}

var logged = &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w"},
	Spec: trivet.WorkflowSpec{Actions: []trivet.Action{{Name: "a", Use: "noop"}}}}

// A gap ends what can be read until no reachable head can fill it.
func TestLogGaps(t *testing.T) {
	s := newSite(t, 3)
	v := s.heads[0].logs.View(logged)
	s.heads[0].appendLog(0, "one ")
	refresh(t, v, false)
	s.heads[0].appendLog(8, "three ")
	refresh(t, v, false)
	if got := readAll(t, v); got != "one " {
		t.Errorf("with a piece that was sent to another head: %q", got)
	}
	s.heads[1].appendLog(4, "two ")
	refresh(t, v, true)
	if got := readAll(t, v); got != "one two three " || v.Unreachable() != nil {
		t.Errorf("%q, unreachable are %v", got, v.Unreachable())
	}
	s.heads[2].appendLog(20, "five")
	s.heads[2].appendLog(0, "one ")
	refresh(t, v, true)
	if got := readAll(t, v); got != "one two three ......five" {
		t.Errorf("with a piece that no head has: %q", got)
	}
	s.heads[1].stop()
	refresh(t, v, true)
	if got := readAll(t, v); got != "one ....three ......five" || fmt.Sprint(v.Unreachable()) != "[head1]" {
		t.Errorf("%q, unreachable are %v", got, v.Unreachable())
	}
}

// Faulty heads are reported, and add only what is valid.
func TestLogsWithFaultyHeads(t *testing.T) {
	faulty := func(parts string, text any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/parts") {
				fmt.Fprint(w, parts)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"text": text})
		}
	}
	huge := fmt.Sprintf(`[{"action":"a","epoch":1,"attempt":1,"bytes":%d}]`, runlog.MaxBytes)
	for name, c := range map[string]struct {
		handler     http.HandlerFunc
		unreachable bool
	}{
		"hangs":  {hang, true},
		"fails":  {fail, true},
		"floods": {flood, true},
		"has invalid parts": {faulty(`[{"action":"../a","epoch":1,"attempt":1,"bytes":9},
			{"action":"b","epoch":1,"attempt":1,"bytes":9},{"action":"a","epoch":1,"attempt":0,"bytes":9},
			{"action":"a","epoch":1,"attempt":1,"bytes":-9},
			{"action":"a","epoch":1,"attempt":1,"bytes":99999999999}]`, []byte("never")), false},
		"responds with too much":       {faulty(huge, bytes.Repeat([]byte("x"), replica.LogChunkBytes+1)), true},
		"responds with no text":        {faulty(huge, 7), true},
		"has less than what it claims": {faulty(huge, []byte{}), false},
		"has other text":               {faulty(`[{"action":"a","epoch":1,"attempt":1,"bytes":3}]`, []byte("xxx")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			s.heads[0].appendLog(0, "one ")
			s.heads[2].appendLog(4, "two")
			s.heads[1].inject(func(http.Handler) http.Handler { return c.handler })
			v := s.heads[0].logs.View(logged)
			refresh(t, v, true)
			got := readAll(t, v)
			if got != "one two" {
				t.Errorf("%.100q", got)
			}
			want := map[bool]string{true: "[head1]", false: "[]"}[c.unreachable]
			if unreachable := fmt.Sprint(v.Unreachable()); unreachable != want {
				t.Errorf("unreachable are %s", unreachable)
			}
		})
	}
}

// Only members that are full heads can read logs, and only logs.
func TestLogAccess(t *testing.T) {
	s := newSite(t, 2)
	s.heads[0].appendLog(0, "text")
	s.record("head8", trivet.RoleWitness, func(rec *trivet.Head) { rec.Status.State = trivet.HeadMember })
	post := func(cert *tls.Certificate, path, body string) int {
		c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: s.keys.CA.PeerTLS(func() (*tls.Certificate, error) { return cert, nil })}}
		defer c.CloseIdleConnections()
		resp := must(c.Post("https://"+s.heads[0].addr+peer.Prefix+"logs/"+path, "application/json",
			strings.NewReader(body)))(t)
		resp.Body.Close()
		return resp.StatusCode
	}
	witness := s.certify(auth.Peer{Name: "head8", Role: auth.PeerWitness, Host: "127.0.0.1"})
	good := `{"workflow":"default/w","action":"a","epoch":1,"attempt":1}`
	for _, path := range []string{"parts", "read"} {
		for name, cert := range map[string]*tls.Certificate{"no certificate": {}, "a witness": witness} {
			if status := post(cert, path, good); status != http.StatusForbidden && status != http.StatusUnauthorized {
				t.Errorf("%s: %s: %d", path, name, status)
			}
		}
		if status := post(s.heads[1].cert, path, good); status != http.StatusOK {
			t.Errorf("%s: a member: %d", path, status)
		}
		for _, bad := range []string{``, `[]`, `{"workflow":"../w","action":"a","epoch":1,"attempt":1}`,
			`{"workflow":"","action":"a","epoch":1,"attempt":1}`} {
			if status := post(s.heads[1].cert, path, bad); status < 400 || status >= 500 {
				t.Errorf("%s: %s: %d", path, bad, status)
			}
		}
	}
	for _, bad := range []string{`{"workflow":"default/w","action":"../a","epoch":1,"attempt":1}`,
		`{"workflow":"default/w","action":"a","epoch":1,"attempt":0}`, `{"workflow":"default/w","action":"a","attempt":1}`,
		`{"workflow":"default/w","action":"a","epoch":1,"attempt":1,"offset":-1}`,
		`{"workflow":"default/w","action":"a","epoch":1,"attempt":1,"offset":9223372036854775807}`} {
		if status := post(s.heads[1].cert, "read", bad); status < 400 || status >= 500 {
			t.Errorf("%s: %d", bad, status)
		}
	}
}
