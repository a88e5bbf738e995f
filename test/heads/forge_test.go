package heads_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
)

// A witness that was taken over can neither read a record nor write one: what it proposes is refused by all heads, which
// report it and serve on.
func TestForgingWitness(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	program := filepath.Join(t.TempDir(), "trivet")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=faultinject", "-o", program,
		"../../cmd/trivet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	admin := os.Getenv("TRIVET")
	t.Setenv("TRIVET", program)
	t.Setenv("TRIVET_FAULT", "WitnessForges")
	w := h0.join("head2", "token", "--witness")
	t.Setenv("TRIVET", admin)
	l.cl = h0.client(h0, h1)
	l.write()

	id, plain, hash := auth.NewToken()
	forged := []string{
		`/trivet/account/mallory {"kind":"Account","name":"mallory","uid":"1","spec":{"role":"admin"}}`,
		fmt.Sprintf(`/trivet/token/%s {"kind":"Token","name":%q,"uid":"2","spec":{"account":"mallory","hash":%q}}`,
			id, id, hash),
		"/trivet/machine/m2 =/trivet/machine/m1",
		"/trivet/site/site {}",
	}
	if err := os.WriteFile(filepath.Join(w.Dir, "forge"), []byte(strings.Join(forged, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, h := range []*head{h0, h1} {
		h.awaitRefused(len(forged), h0, h1)
		h.refusesToken(t, h0, plain.Reveal())
		one := h0.client(h)
		if m, err := client.Of[trivet.Machine](one).Get(t.Context(), "m2"); err == nil {
			t.Errorf("%s shows %+v", h.Name, m)
		}
		if all, _, err := client.Of[trivet.Account](one).List(t.Context(), client.ListOptions{}); err != nil ||
			len(all) != 1 {
			t.Errorf("%s shows the accounts %+v, %v", h.Name, all, err)
		}
	}
	l.write()
	h0.Await("head1 has every write", func() error { // its copy may be a moment behind
		m, err := client.Of[trivet.Machine](h0.clientOnce(h1)).Get(t.Context(), machine)
		if err == nil && m.Labels[fmt.Sprint("write", l.writes)] == "" {
			err = errors.New("the last one is missing")
		}
		return err
	})
	l.read(h0.client(h1))
	w.Stop()
	w.holdsNo(t, "write1", "127.9.9.200") // names are in keys, which it can read
	h1.Stop()
	h1.Up()
	h1.awaitRefused(len(forged), h1)
	h0.awaitMember("head1")
	h0.MustTrivet("head", "remove", "head2", "--yes")
	h0.awaitState("head2", "removed")
	l.write()
}

// awaitRefused waits until this head lists others, each with a number of values that it refuses.
func (h *head) awaitRefused(n int, others ...*head) {
	h.Helper()
	want := fmt.Sprintf("refuses %d values of the store", n)
	h.Await(want, func() error {
		v, err := h.view()
		for _, o := range others {
			for _, shown := range v.Heads {
				if shown.Name == o.Name && !strings.Contains(shown.Problem, want) {
					err = errors.Join(err, fmt.Errorf("%s: %q", o.Name, shown.Problem))
				}
			}
		}
		return err
	})
}

// refusesToken wants a head to refuse a token.
func (h *head) refusesToken(t *testing.T, admin *head, token string) {
	t.Helper()
	c, err := client.ReadFile(filepath.Join(admin.Dir, "admin.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	as, err := c.Pick("")
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{Endpoints: []string{h.API()}, Trust: as.Trust, Token: token, RetryTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = client.Of[trivet.Machine](cl).List(t.Context(), client.ListOptions{})
	if !errors.Is(err, trivet.ErrUnauthenticated) && !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("%s, with a forged token: %v", h.Name, err)
	}
}

// holdsNo searches the data directory for texts of records.
func (h *head) holdsNo(t *testing.T, texts ...string) {
	t.Helper()
	err := filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, text := range texts {
			if bytes.Contains(content, []byte(text)) {
				t.Errorf("%s holds %s", path, text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
