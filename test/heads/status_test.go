package heads_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/testhead"
)

// status returns the state of the site as one head sees it, and the exit status of the command.
func (h *head) status(at *head, namespace ...string) (r trivet.StatusReport, code int) {
	h.Helper()
	ns := ""
	if len(namespace) > 0 {
		ns = namespace[0]
	}
	cmd := testhead.Command(ns, testhead.Program(h.T), "status", "-o", "json")
	cmd.Env = append(cmd.Environ(), "TRIVET_CONFIG="+h.AdminFile(), "TRIVET_ENDPOINTS="+testhead.APIURL(at.Address))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.Fatal(err)
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return r, cmd.ProcessState.ExitCode()
	}
	return r, cmd.ProcessState.ExitCode()
}

// awaitStatus waits until the invariants that do not hold are these, each "name: what its summary begins with", and
// returns the exit status.
func (h *head) awaitStatus(at *head, want []string, namespace ...string) (code int) {
	h.Helper()
	h.Await("the status", func() error {
		var r trivet.StatusReport
		r, code = h.status(at, namespace...)
		var got []string
		for _, i := range r.Invariants {
			if i.State != trivet.InvariantHolds {
				got = append(got, i.Name+": "+i.Summary)
			}
		}
		same := len(r.Invariants) > 0 && slices.EqualFunc(got, want, strings.HasPrefix)
		if !same {
			return fmt.Errorf("exit status %d; the invariants that do not hold are %q, want %q", code, got, want)
		}
		return nil
	})
	return code
}

// Of three heads every invariant holds, as each of them sees it, once there is a backup that was proven. When one is
// killed, the status names it, and what the next failure would break; without a quorum, the recovery; and all holds
// again when the heads are back. A head has the metric soon after its start.
func TestStatus(t *testing.T) {
	t.Parallel()
	h0, _ := startWithLedger(t)
	h1, h2 := h0.join("head1"), h0.join("head2")
	image, dir, key := filepath.Join(t.TempDir(), "i.raw"), t.TempDir(), filepath.Join(t.TempDir(), "key")
	for path, text := range map[string]string{image: "image\x00", key: h0.MustTrivet("backup", "key", "--yes")} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h0.MustTrivet("image", "import", image, "--name", "i1", "--format", "raw")
	h0.MustTrivet("backup", "create", "--to", dir, "--blobs")
	backups, err := filepath.Glob(dir + "/*.backup")
	if err != nil || len(backups) != 1 {
		t.Fatal(backups, err)
	}
	h0.MustTrivet("backup", "verify", backups[0], "--key", key)
	all := []*head{h0, h1, h2}
	for _, at := range all {
		if code := h0.awaitStatus(at, nil); code != 0 {
			t.Errorf("at %s: exit status %d", at.Name, code)
		}
	}
	r, _ := h0.status(h1)
	probes := 0
	for _, h := range r.Facts.Heads {
		probes += len(h.Own.Probes)
	}
	if want := 3 * 3 * 3; probes != want { // each head asks each for DHCP, TFTP and a script; there is no platform
		t.Errorf("%d probes, want %d: %+v", probes, want, r.Facts.Heads)
	}

	shown := h0.client(h1)
	h0.Await("the metric of head1", func() error {
		text, err := shown.Metrics(t.Context())
		if !strings.Contains(string(text), `trivet_invariant{invariant="quorum"} 0`) {
			return fmt.Errorf("it is not there: %w", err)
		}
		return nil
	})

	h2.Kill()
	if code := h0.awaitStatus(h0, []string{"heads: head2 does not respond",
		"spare: the loss of any of head0, head1 stops writes: 2 of 3 voters respond"}); code != 2 {
		t.Errorf("a head is down: exit status %d", code)
	}
	h1.Kill()
	if code := h0.awaitStatus(h0, []string{"quorum: no quorum: 1 of 3 voters respond, and 2 must", "heads: head1",
		"spare: there is none"}); code != 2 {
		t.Errorf("no quorum: exit status %d", code)
	}
	for _, at := range all[1:] {
		if _, code := h0.status(at); code != 3 {
			t.Errorf("a head that does not run: exit status %d", code)
		}
	}
	h1.Up()
	h2.Up()
	if code := h0.awaitStatus(h1, nil); code != 0 {
		t.Errorf("all are back: exit status %d", code)
	}
}

// Two heads on one wire probe each other, and themselves, on the ports that firmware uses. One that is killed does not
// answer any more.
func TestStatusProbesTheWire(t *testing.T) {
	t.Parallel()
	one, two := twoNamespaces(t)
	h0, h1 := newHead(t, "head0"), newHead(t, "head1")
	h0.Address, h1.Address = "10.99.0.1", "10.99.0.2"
	h0.StartIn(one, "--dhcp", "boot0")
	h0.AwaitReady()
	token := h0.trivetIn(one, "head", "token")
	h1.StartIn(two, "--dhcp", "boot0", "--join", "https://10.99.0.1:7480", "--token", token)
	h1.AwaitReady()
	h0.trivetIn(one, "apply", "-f", writeFile(t, "kind: Network\nname: boot\nspec: {cidr: 10.99.0.0/24}\n"))
	const spare, backups = "spare: the loss of head0 or of head1 stops writes", "backups: "
	h0.awaitStatus(h0, []string{spare, backups}, one)
	h0.awaitStatus(h1, []string{spare, backups}, one)
	r, _ := h0.status(h0, one)
	for _, h := range r.Facts.Heads {
		if len(h.Own.Probes) != 2*3 {
			t.Errorf("%s probed %+v", h.Name, h.Own.Probes)
		}
	}
	h1.Kill()
	h0.Await("what is left", func() error {
		r, _ := h0.status(h0, one)
		for _, h := range r.Facts.Heads {
			if h.Name != "head0" {
				continue
			}
			for _, p := range h.Own.Probes {
				if (p.Head == "head0") != (p.Problem == "") {
					return fmt.Errorf("%+v", p)
				}
			}
		}
		return nil
	})
}

// trivetIn runs an operator command in a network namespace, which must succeed.
func (h *head) trivetIn(namespace string, args ...string) string {
	h.Helper()
	r, err := testhead.CLI(h.Context(), testhead.Command(namespace, testhead.Program(h.T), args...), h.AdminFile())
	if err != nil {
		h.Fatal(err)
	}
	return strings.TrimSpace(r.Stdout)
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
