package heads_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A log whose parts are at two heads is complete at each head. A head that does not answer is named, and the rest is
// printed.
func TestLogs(t *testing.T) {
	t.Parallel()
	h0 := startFirst(t)
	all := []*head{h0, h0.join("head1"), h0.join("head2")}
	cl := h0.client(all...)
	createMachine(t, cl)
	template := &trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "one", Use: "noop"}}}}
	if _, err := client.Of[trivet.Template](cl).Create(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	provision := &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "p"},
		Spec: trivet.ProvisionSpec{Template: "t", Machine: machine}}
	if _, err := client.Of[trivet.Provision](cl).Create(t.Context(), provision); err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		h.Await("knows the run", func() error {
			_, err := client.Of[trivet.Workflow](h0.clientOnce(h)).Get(t.Context(), "p-1")
			return err
		})
	}
	h0.writeLog("one\n\x00\x00\x00\x00three\n")
	all[1].writeLog("\x00\x00\x00\x00two\n")
	logs := func(at *head) (stdout, all string) {
		t.Helper()
		r, err := h0.TrivetAt(at.Head, "logs", "p-1")
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(r.Stdout), r.All
	}
	for _, h := range all {
		if _, got := logs(h); got != "==> one, epoch 1, attempt 1 <==\none\ntwo\nthree\n" {
			t.Errorf("at %s:\n%q", h.Name, got)
		}
	}
	all[1].Kill()
	for _, h := range []*head{h0, all[2]} {
		text, got := logs(h)
		if text != "==> one, epoch 1, attempt 1 <==\none\nthree" ||
			!strings.Contains(got, "trivet: warning: cannot reach head1") {
			t.Errorf("at %s, without head1:\n%s", h.Name, got)
		}
	}
}

// writeLog writes the file that the head would have if the agent of run p-1 had sent it a part of its log.
func (h *head) writeLog(file string) {
	h.Helper()
	dir := filepath.Join(h.Dir, "logs", "default", "p-1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "one.1.1.log"), []byte(file), 0o600); err != nil {
		h.Fatal(err)
	}
}
