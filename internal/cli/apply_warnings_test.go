package cli

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// countingHead is a head without records, and how often it was asked for each path.
type countingHead struct {
	client  *client.Client
	mu      sync.Mutex
	paths   map[string]int
	refuses error // the error of all requests; nil: it serves them
}

func newCountingHead(t *testing.T) *countingHead {
	t.Helper()
	h := &countingHead{paths: map[string]int{}}
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.paths[r.URL.Path]++
		switch {
		case h.refuses != nil:
			refuse(w, h.refuses)
		case strings.Contains(r.URL.Path, "/images/"):
			refuse(w, trivet.ErrNotFound)
		default:
			fmt.Fprint(w, `{"items": []}`)
		}
	}))
	t.Cleanup(s.Close)
	trust := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	cl, err := client.New(client.Config{Endpoints: []string{s.URL}, Trust: string(trust), Token: "t", RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	h.client = cl
	return h
}

func refuse(w http.ResponseWriter, err error) {
	status, p := apitypes.NewProblem(err)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(p)
}

// warnOf prints what is suspicious about records that were created.
func (h *countingHead) warnOf(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "all.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	a := newApp(Env{In: strings.NewReader(""), Out: &out, Err: &out})
	all, err := a.readManifests([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	doubts := a.newDoubts(h.client, all)
	for _, m := range all {
		a.warn(t.Context(), doubts, m, applied{now: m.record, verb: "created"})
	}
	return out.String()
}

// manyRecords are n machines with addresses, provisions that select none, and templates without their image.
func manyRecords(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\nkind: Machine\nname: m%d\nspec: {nics: [{mac: 52:54:00:00:00:%02x, address: 10.0.0.%d}]}\n", i, i, i+1)
		fmt.Fprintf(&b, "---\nkind: Provision\nname: p%d\nspec: {template: t%d, selector: {rack: r9}}\n", i, i)
		fmt.Fprintf(&b, "---\nkind: Template\nname: t%d\nspec: {actions: [{name: a, use: image, with: {image: debain}}]}\n", i)
	}
	return b.String()
}

// However many records a file has, each question about them is sent once.
func TestWarningsAskOnce(t *testing.T) {
	t.Parallel()
	h := newCountingHead(t)
	out := h.warnOf(t, manyRecords(50))
	if n := strings.Count(out, "trivet: warning:"); n != 3 {
		t.Errorf("%d warnings: %s", n, out)
	}
	for path, n := range h.paths {
		if n != 1 {
			t.Errorf("%s: %d requests", path, n)
		}
	}
	if len(h.paths) != 3 {
		t.Errorf("requests: %v", h.paths)
	}
}

// What cannot be found out is one warning, and the records after it are applied as well. What may not be read is none.
func TestWarningsOfAHeadThatRefuses(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[error]int{trivet.ErrInvalid: 1, trivet.ErrForbidden: 0} {
		h := newCountingHead(t)
		h.refuses = refusal
		out := h.warnOf(t, manyRecords(3))
		if n := strings.Count(out, "trivet: warning: what "); n != want || strings.Count(out, "warning") != want {
			t.Errorf("%v: %s", refusal, out)
		}
	}
}

// An image that the files have is there when all is applied, whatever their order.
func TestNoWarningOfAnImageInTheFiles(t *testing.T) {
	t.Parallel()
	h := newCountingHead(t)
	image := "---\nkind: Image\nname: debain\nspec: {format: raw, blob: {digest: 'sha256:" + strings.Repeat("a", 64) +
		"', bytes: 1}}\n"
	if out := h.warnOf(t, manyRecords(1)+image); strings.Contains(out, "debain") {
		t.Error(out)
	}
}
