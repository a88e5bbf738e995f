// Package heads_test treats several heads badly: the real program, each head on an address of loopback of its own, joining,
// dying, coming back, with wrong tokens, copied data and foreign certificates. What was acknowledged must still be there, and
// who is refused must be told what to do.
package heads_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// patience bounds every wait of these tests for something that must come.
const patience = 60 * time.Second

// head is one head: where it is, and the process that runs as it now.
type head struct {
	*testing.T
	name string // as it is expected to be called
	dir  string
	host string
	// advertise is the address that others are told; empty: host
	advertise string

	cmd  *exec.Cmd
	log  *transcript
	done chan struct{} // closed when the process has ended
}

var hosts atomic.Uint32

// ownHost gives an address of loopback that no other test uses.
func ownHost() string {
	n := hosts.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%128, 128+n>>8, n&0xff)
}

func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TRIVET")
	if path == "" {
		t.Fatal("TRIVET is not set: run make test, or make build && TRIVET=$PWD/bin/trivet go test ./test/heads")
	}
	return path
}

// newHead is a head that has not started yet.
func newHead(t *testing.T, name string) *head {
	return &head{T: t, name: name, dir: filepath.Join(t.TempDir(), "data"), host: ownHost()}
}

func (h *head) api() string { return "https://" + h.host + ":7480" }

// start starts the process; it may not come up.
func (h *head) start(more ...string) {
	h.Helper()
	args := append([]string{"server", "--data-dir", h.dir, "--advertise", cmp.Or(h.advertise, h.host), "--ipxe", h.programs(), "--api", h.host + ":7480",
		"--boot", h.host + ":7481", "--tftp", h.host + ":7069", "--dhcp-listen", h.host + ":7067"}, more...)
	h.run(exec.Command(binary(h.T), args...))
}

// programs is a folder with what machines boot.
func (h *head) programs() string {
	h.Helper()
	dir := filepath.Join(h.dir, "../ipxe")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		h.Fatal(err)
	}
	for _, name := range []string{bootFile, "snponly.efi"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name), 3000), 0o600); err != nil {
			h.Fatal(err)
		}
	}
	return dir
}

func (h *head) run(cmd *exec.Cmd) {
	h.Helper()
	h.cmd, h.log, h.done = cmd, &transcript{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = h.log, h.log
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	log, done := h.log, h.done
	go func() { _ = cmd.Wait(); close(done) }()
	h.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
		for _, wrong := range []string{"DATA RACE", "panic:"} {
			if strings.Contains(log.String(), wrong) {
				h.Errorf("%s: %s", h.name, wrong)
			}
		}
		if h.Failed() {
			h.Logf("%s said:\n%s", h.name, log)
		}
	})
}

// up starts it and waits until it is ready.
func (h *head) up(more ...string) {
	h.Helper()
	h.start(more...)
	h.says("msg=ready")
}

// says waits until it has said something.
func (h *head) says(text string) {
	h.Helper()
	h.await("says "+text, func() error {
		if !strings.Contains(h.log.String(), text) {
			select {
			case <-h.done:
				h.Fatalf("%s ended without saying %q:\n%s", h.name, text, h.log)
			default:
			}
			return errors.New("not yet")
		}
		return nil
	})
}

// kill is kill -9, and stop an orderly end.
func (h *head) kill() {
	h.Helper()
	_ = h.cmd.Process.Kill() // it may have ended
	<-h.done
}

func (h *head) stop() {
	h.Helper()
	_ = h.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	if h.ended() != 0 {
		h.Errorf("%s: no orderly end", h.name)
	}
}

// ended waits for the end and gives the exit status.
func (h *head) ended() int {
	h.Helper()
	select {
	case <-h.done:
	case <-time.After(patience):
		h.Fatalf("%s does not end:\n%s", h.name, h.log)
	}
	return h.cmd.ProcessState.ExitCode()
}

// refused wants a head that ends with status 1 and says all of this.
func (h *head) refused(words ...string) {
	h.Helper()
	if status := h.ended(); status != 1 {
		h.Errorf("exit status %d, want 1", status)
	}
	for _, word := range append(words, "hint:") {
		if !strings.Contains(h.log.String(), word) {
			h.Errorf("%s does not say %q:\n%s", h.name, word, h.log)
		}
	}
}

// await tries until it works.
func (h *head) await(what string, try func() error) {
	h.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	h.Fatalf("%s: %s: %v", h.name, what, err)
}

// trivet runs an operator's command with the administrator's credential of this head and gives what it said.
func (h *head) trivet(args ...string) (stdout, all string, err error) {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(h.T), args...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+filepath.Join(h.dir, "admin.yaml"))
	var out bytes.Buffer
	var both transcript // two write to it at once
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&out, &both), &both
	err = cmd.Run()
	return strings.TrimSpace(out.String()), both.String(), err
}

func (h *head) must(args ...string) string {
	h.Helper()
	out, all, err := h.trivet(args...)
	if err != nil {
		h.Fatalf("trivet %s: %v\n%s", strings.Join(args, " "), err, all)
	}
	return out
}

// token issues one.
func (h *head) token(args ...string) string {
	h.Helper()
	if len(args) == 0 {
		args = []string{"token"}
	}
	return h.must(append([]string{"head"}, args...)...)
}

// join makes a head join this one's cluster and waits until it counts.
func (h *head) join(name string, args ...string) *head {
	h.Helper()
	n := newHead(h.T, name)
	n.up("--join", h.api(), "--token", h.token(args...))
	h.counts(name)
	return n
}

// view is the cluster as this head sees it.
func (h *head) view() (v trivet.Cluster, err error) {
	out, all, err := h.trivet("head", "list", "--all", "-o", "json")
	if err != nil {
		return v, fmt.Errorf("%w: %s", err, all)
	}
	return v, json.Unmarshal([]byte(out), &v)
}

// sees waits until a head is in one of these states.
func (h *head) sees(name string, states ...string) (last trivet.HeadView) {
	h.Helper()
	h.await(fmt.Sprintf("%s is %s", name, states), func() error {
		v, err := h.view()
		for _, seen := range v.Heads {
			if seen.Name != name {
				continue
			}
			last = seen
			for _, s := range states {
				if seen.State == s {
					return nil
				}
			}
		}
		return errors.Join(err, fmt.Errorf("the heads are %+v", v.Heads))
	})
	return last
}

func (h *head) counts(name string) { h.Helper(); h.sees(name, "member", "leader") }

// asks gives a client with this head's credential, that asks some heads.
func (h *head) asks(patience time.Duration, heads ...*head) *client.Client {
	h.Helper()
	f, err := client.ReadFile(filepath.Join(h.dir, "admin.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	c, err := f.Pick("")
	if err != nil {
		h.Fatal(err)
	}
	var urls []string
	for _, o := range heads {
		urls = append(urls, o.api())
	}
	cl, err := client.New(client.Config{Endpoints: urls, Trust: c.Trust, Token: c.Token, Patience: patience})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(cl.Close)
	return cl
}

// ledger writes labels to one machine and wants those back that were acknowledged.
type ledger struct {
	*testing.T
	cl     *client.Client
	writes int
}

const machine = "m1"

func newLedger(t *testing.T, cl *client.Client) *ledger {
	t.Helper()
	n := &trivet.Network{Meta: trivet.Meta{Name: "lo"}, Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("127.0.0.0/8"),
		Ranges: []trivet.Range{{From: netip.MustParseAddr("127.9.9.1"), To: netip.MustParseAddr("127.9.9.200")}}}}
	if _, err := client.Of[trivet.Network](cl).Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	m := &trivet.Machine{Meta: trivet.Meta{Name: machine}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: knownMAC}}}}
	if _, err := client.Of[trivet.Machine](cl).Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return &ledger{T: t, cl: cl}
}

// write must succeed.
func (l *ledger) write() {
	l.Helper()
	l.writes++
	patch := fmt.Appendf(nil, `{"labels":{"write%d":"done"}}`, l.writes)
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	if _, err := client.Of[trivet.Machine](l.cl).Patch(ctx, machine, patch, 0); err != nil {
		l.Fatalf("write %d: %v", l.writes, err)
	}
}

// read wants all writes.
func (l *ledger) read(cl *client.Client) {
	l.Helper()
	m, err := client.Of[trivet.Machine](cl).Get(l.Context(), machine)
	if err != nil {
		l.Fatal(err)
	}
	for n := 1; n <= l.writes; n++ {
		if m.Labels[fmt.Sprint("write", n)] != "done" {
			l.Errorf("acknowledged write %d is lost", n)
		}
	}
}

// transcript is what a program says.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (w *transcript) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}
