package compat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// head is one head: where it is, and the process of either version that runs as it now.
type head struct {
	*testing.T
	dir  string
	host string

	cmd  *exec.Cmd
	log  *transcript
	done chan struct{} // closed when the process has ended
}

var hosts atomic.Uint32

func newHead(t *testing.T) *head {
	n := hosts.Add(1)
	return &head{T: t, dir: filepath.Join(t.TempDir(), "data"), host: fmt.Sprintf("127.%d.77.%d", 64+os.Getpid()%128, n)}
}

func (h *head) api() string  { return "https://" + h.host + ":7480" }
func (h *head) boot() string { return "http://" + h.host + ":7481" }
func (h *head) dhcp() string { return h.host + ":7067" }

// start runs the head as a program; it may not come up.
func (h *head) start(program string, more ...string) {
	h.Helper()
	ipxe := filepath.Join(h.TempDir(), "ipxe")
	if err := os.Mkdir(ipxe, 0o755); err != nil {
		h.Fatal(err)
	}
	for _, name := range []string{"undionly.kpxe", "snponly.efi"} {
		if err := os.WriteFile(filepath.Join(ipxe, name), []byte("simulated\n"), 0o644); err != nil {
			h.Fatal(err)
		}
	}
	args := append([]string{"server", "--data-dir", h.dir, "--advertise", h.host, "--ipxe", ipxe, "--api", h.host + ":7480",
		"--boot", h.host + ":7481", "--tftp", "", "--dhcp-listen", h.dhcp()}, more...)
	cmd, log, done := exec.Command(program, args...), &transcript{}, make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		h.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(done) }()
	h.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-done
		if strings.Contains(log.String(), "panic:") {
			h.Error("panic")
		}
		if h.Failed() {
			h.Logf("%s said:\n%s", h.host, log)
		}
	})
	h.cmd, h.log, h.done = cmd, log, done
}

// up starts it and waits until it is ready.
func (h *head) up(program string, more ...string) {
	h.Helper()
	h.start(program, more...)
	h.await("is ready", func() error {
		select {
		case <-h.done:
			h.Fatalf("it ended:\n%s", h.log)
		default:
		}
		if !strings.Contains(h.log.String(), "msg=ready") {
			return errors.New("not yet")
		}
		return nil
	})
}

func (h *head) kill() { _ = h.cmd.Process.Kill(); <-h.done }

// stop wants an orderly end.
func (h *head) stop() {
	h.Helper()
	_ = h.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-h.done:
	case <-time.After(patience):
		h.Fatalf("%s does not end:\n%s", h.host, h.log)
	}
	if status := h.cmd.ProcessState.ExitCode(); status != 0 {
		h.Errorf("exit status %d:\n%s", status, h.log)
	}
}

// refused wants a head that does not come up and says all of this.
func (h *head) refused(words ...string) {
	h.Helper()
	select {
	case <-h.done:
	case <-time.After(patience):
		h.Fatalf("it is not refused:\n%s", h.log)
	}
	says(h.T, h.log.String(), append(words, "hint:")...)
}

func says(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
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
	h.Fatalf("%s: %s: %v", h.host, what, err)
}

// trivet runs an operator's command of a version with this head's credential.
func (h *head) trivet(program, stdin string, args ...string) (stdout, all string, err error) {
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+filepath.Join(h.dir, "admin.yaml"))
	var out, both bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &tee{&out, &both}, &both
	err = cmd.Run()
	return out.String(), both.String(), err
}

type tee struct{ a, b *bytes.Buffer }

func (t *tee) Write(p []byte) (int, error) { t.a.Write(p); return t.b.Write(p) }

func (h *head) must(program string, args ...string) string {
	h.Helper()
	out, all, err := h.trivet(program, "", args...)
	if err != nil {
		h.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, all)
	}
	return strings.TrimSpace(out)
}

// apply is "trivet apply" of a version.
func (h *head) apply(program, yaml string) {
	h.Helper()
	if _, all, err := h.trivet(program, yaml, "apply", "-f", "-"); err != nil {
		h.Fatalf("apply: %v\n%s", err, all)
	}
}

// asks gives a client with this head's credential that asks some heads.
func (h *head) asks(heads ...*head) *client.Client {
	h.Helper()
	return h.as(h.credential().Token, heads...)
}

// as gives a client with a token.
func (h *head) as(token string, heads ...*head) *client.Client {
	h.Helper()
	var urls []string
	for _, o := range heads {
		urls = append(urls, o.api())
	}
	cl, err := client.New(client.Config{Endpoints: urls, Trust: h.credential().Trust, Token: token, Patience: patience})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(cl.Close)
	return cl
}

// credential is the administrator's, as the head has written it.
func (h *head) credential() client.Context {
	h.Helper()
	f, err := client.ReadFile(filepath.Join(h.dir, "admin.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	c, err := f.Pick("")
	if err != nil {
		h.Fatal(err)
	}
	return c
}

// join makes a new head join this one's cluster and waits until it counts.
func (h *head) join(name string) *head {
	h.Helper()
	n := newHead(h.T)
	n.up(newTrivet, "--join", h.api(), "--token", h.must(newTrivet, "head", "token"))
	h.counts(name)
	return n
}

func (h *head) counts(name string) {
	h.Helper()
	cl := h.asks(h)
	h.await(name+" counts", func() error {
		rec, err := client.Of[trivet.Head](cl).Get(h.Context(), name)
		if err == nil && rec.Status.State != trivet.HeadMember {
			err = fmt.Errorf("it is %+v", rec.Status)
		}
		return err
	})
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
