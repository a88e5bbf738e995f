package heads_test

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
	"github.com/trivet-project/trivet/internal/heads"
	"github.com/trivet-project/trivet/internal/runlog"
)

func (s *site) newLogs(h *head) *heads.Logs {
	own := must(runlog.Open(s.t.TempDir()))(s.t)
	s.t.Cleanup(func() { own.Close() })
	c := heads.NewCaller(func() (*tls.Certificate, error) { return h.cert, nil }, func() *auth.Root { return &s.keys.CA.Root }, nil)
	s.t.Cleanup(c.Close)
	return &heads.Logs{Store: own, Fleet: s.fleet, Caller: c}
}

func (h *head) wrote(offset int64, text string) {
	h.site.t.Helper()
	if err := h.logs.Store.Append("w", "a", 1, offset, []byte(text)); err != nil {
		h.site.t.Fatal(err)
	}
}

// told is what a view has to tell of one part from its beginning.
func told(t *testing.T, v *heads.LogView) string {
	t.Helper()
	var text []byte
	buf := make([]byte, heads.LogChunk)
	for {
		n, err := v.Read(t.Context(), runlog.Part{Action: "a", Attempt: 1}, int64(len(text)), buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return strings.ReplaceAll(string(text), "\x00", ".")
		}
		text = append(text, buf[:n]...)
	}
}

func look(t *testing.T, v *heads.LogView, latest bool) {
	t.Helper()
	if err := v.Look(t.Context(), latest); err != nil {
		t.Fatal(err)
	}
}

var logged = &trivet.Workflow{Meta: trivet.Meta{Name: "w"}, Spec: trivet.WorkflowSpec{Actions: []trivet.Action{{Name: "a", Use: "noop"}}}}

// A hole ends what is told until it is sure that nobody who answers fills it.
func TestHolesOfLogs(t *testing.T) {
	s := newSite(t, 3)
	v := s.heads[0].logs.View(logged)
	s.heads[0].wrote(0, "one ")
	look(t, v, false)
	s.heads[0].wrote(8, "three ")
	look(t, v, false)
	if got := told(t, v); got != "one " {
		t.Errorf("with a piece on its way to another head: %q", got)
	}
	s.heads[1].wrote(4, "two ")
	look(t, v, true)
	if got := told(t, v); got != "one two three " || v.Silent() != nil {
		t.Errorf("%q, silent are %v", got, v.Silent())
	}
	s.heads[2].wrote(20, "five")
	s.heads[2].wrote(0, "one ")
	look(t, v, true)
	if got := told(t, v); got != "one two three ......five" {
		t.Errorf("with a piece that nobody has: %q", got)
	}
	s.heads[1].stop()
	look(t, v, true)
	if got := told(t, v); got != "one ....three ......five" || fmt.Sprint(v.Silent()) != "[head1]" {
		t.Errorf("%q, silent are %v", got, v.Silent())
	}
}

// Spoilt heads are named, and add nothing but what can be.
func TestLogsOfSpoiltHeads(t *testing.T) {
	lies := func(parts string, text any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/parts") {
				fmt.Fprint(w, parts)
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"text": text})
		}
	}
	huge := fmt.Sprintf(`[{"action":"a","attempt":1,"bytes":%d}]`, runlog.MaxBytes)
	for name, c := range map[string]struct {
		spoilt http.HandlerFunc
		named  bool
	}{
		"hangs":   {hang, true},
		"is ill":  {ill, true},
		"babbles": {babble, true},
		"has what cannot be": {lies(`[{"action":"../a","attempt":1,"bytes":9},{"action":"b","attempt":1,"bytes":9},{"action":"a","attempt":0,"bytes":9},
			{"action":"a","attempt":1,"bytes":-9},{"action":"a","attempt":1,"bytes":99999999999}]`, []byte("never")), false},
		"gives too much at once":       {lies(huge, bytes.Repeat([]byte("x"), heads.LogChunk+1)), true},
		"gives what is not text":       {lies(huge, 7), true},
		"has less than what it claims": {lies(huge, []byte{}), false},
		"tells another story":          {lies(`[{"action":"a","attempt":1,"bytes":3}]`, []byte("xxx")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			s.heads[0].wrote(0, "one ")
			s.heads[2].wrote(4, "two")
			s.heads[1].spoil(func(http.Handler) http.Handler { return c.spoilt })
			v := s.heads[0].logs.View(logged)
			look(t, v, true)
			got := told(t, v)
			if got != "one two" {
				t.Errorf("%.100q", got)
			}
			if silent := fmt.Sprint(v.Silent()); silent != map[bool]string{true: "[head1]", false: "[]"}[c.named] {
				t.Errorf("silent are %s", silent)
			}
		})
	}
}

// Only members that are full heads read logs, and only logs.
func TestLogDoorKeepsOthersOut(t *testing.T) {
	s := newSite(t, 2)
	s.heads[0].wrote(0, "text")
	s.record("head8", trivet.RoleWitness, func(rec *trivet.Head) { rec.Status.State = trivet.HeadMember })
	ask := func(cert *tls.Certificate, path, body string) int {
		c := &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
			TLSClientConfig: s.keys.CA.PeerTLS(func() (*tls.Certificate, error) { return cert, nil })}}
		defer c.CloseIdleConnections()
		resp := must(c.Post("https://"+s.heads[0].addr+heads.Prefix+"logs/"+path, "application/json", strings.NewReader(body)))(t)
		resp.Body.Close()
		return resp.StatusCode
	}
	witness := s.certify(auth.Peer{Name: "head8", Role: auth.PeerWitness, Host: "127.0.0.1"})
	good := `{"workflow":"w","action":"a","attempt":1}`
	for _, path := range []string{"parts", "read"} {
		for name, cert := range map[string]*tls.Certificate{"nobody": {}, "a witness": witness} {
			if status := ask(cert, path, good); status != http.StatusForbidden && status != http.StatusUnauthorized {
				t.Errorf("%s: %s: %d", path, name, status)
			}
		}
		if status := ask(s.heads[1].cert, path, good); status != http.StatusOK {
			t.Errorf("%s: a member: %d", path, status)
		}
		for _, bad := range []string{``, `[]`, `{"workflow":"../w","action":"a","attempt":1}`, `{"workflow":"","action":"a","attempt":1}`} {
			if status := ask(s.heads[1].cert, path, bad); status < 400 || status >= 500 {
				t.Errorf("%s: %s: %d", path, bad, status)
			}
		}
	}
	for _, bad := range []string{`{"workflow":"w","action":"../a","attempt":1}`, `{"workflow":"w","action":"a","attempt":0}`, `{"workflow":"w","action":"a","attempt":1,"offset":-1}`,
		`{"workflow":"w","action":"a","attempt":1,"offset":9223372036854775807}`} {
		if status := ask(s.heads[1].cert, "read", bad); status < 400 || status >= 500 {
			t.Errorf("%s: %d", bad, status)
		}
	}
}
