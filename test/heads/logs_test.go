package heads_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A log whose parts are at two heads is whole at each head. One that cannot be asked is named, and the rest is told.
func TestLogs(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	all := []*head{h0, h0.join("head1"), h0.join("head2")}
	cl := h0.asks(patience, all...)
	m := &trivet.Machine{Meta: trivet.Meta{Name: machine}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: knownMAC}}}}
	if _, err := client.Of[trivet.Machine](cl).Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	template := &trivet.Template{Meta: trivet.Meta{Name: "t"}, Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "one", Use: "noop"}}}}
	if _, err := client.Of[trivet.Template](cl).Create(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	wish := &trivet.Provision{Meta: trivet.Meta{Name: "p"}, Spec: trivet.ProvisionSpec{Template: "t", Machine: machine}}
	if _, err := client.Of[trivet.Provision](cl).Create(t.Context(), wish); err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		h.await("knows the run", func() error {
			_, err := client.Of[trivet.Workflow](h0.asks(-1, h)).Get(t.Context(), "p-1")
			return err
		})
	}
	h0.logged("one\n\x00\x00\x00\x00three\n")
	all[1].logged("\x00\x00\x00\x00two\n")
	logs := func(at *head) (stdout, all string) {
		t.Helper()
		t.Setenv("TRIVET_ENDPOINTS", at.api())
		stdout, all, err := h0.trivet("logs", "p-1")
		if err != nil {
			t.Fatalf("%v\n%s", err, all)
		}
		return stdout, all
	}
	for _, h := range all {
		if _, said := logs(h); said != "==> one, attempt 1 <==\none\ntwo\nthree\n" {
			t.Errorf("at %s:\n%q", h.name, said)
		}
	}
	all[1].kill()
	for _, h := range []*head{h0, all[2]} {
		text, said := logs(h)
		if text != "==> one, attempt 1 <==\none\nthree" || !strings.Contains(said, "trivet: head1 cannot be asked") {
			t.Errorf("at %s, without head1:\n%s", h.name, said)
		}
	}
}

// logged leaves what the head would have if the agent of run p-1 had sent it a part of its log.
func (h *head) logged(file string) {
	h.Helper()
	dir := filepath.Join(h.dir, "logs", "p-1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "one.1.log"), []byte(file), 0o600); err != nil {
		h.Fatal(err)
	}
}
