package testhead

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/client"
)

// Head is one head: where it is, and the process that runs as it now.
type Head struct {
	*testing.T
	Name      string // its expected name
	Dir       string // its data directory
	Address   string
	Advertise string // the address that others are given; empty: Address
	Admin     string // the administrator's file; empty: the one in Dir
	// ClientToken is the token of clients; empty: the administrator's.
	ClientToken string
	Prefix      []string // a command that the program is started by, such as prlimit with its flags; optional
	*Process
}

// BootFile is one of the files that a head serves to firmware. Each holds its own name, BootFileRepeat times.
const (
	BootFile       = "undionly.kpxe"
	BootFileRepeat = 3000
)

var addresses atomic.Uint32

// NewAddress returns an address of loopback that no other test uses, in this process or in another one.
func NewAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>8%128, pid%256, 1+addresses.Add(1)%254)
}

// NewHead returns a head that has not started yet, on an address and a data directory of its own.
func NewHead(t *testing.T, name string) *Head {
	t.Helper()
	return &Head{T: t, Name: name, Dir: filepath.Join(t.TempDir(), "data"), Address: NewAddress()}
}

// API returns the URL of the head's API.
func (h *Head) API() string { return APIURL(h.Address) }

// BootURL returns the URL of the head's boot server.
func (h *Head) BootURL() string { return "http://" + h.Address + ":7481" }

// Start starts the head on its loopback address with more flags. It may fail to become ready.
func (h *Head) Start(flags ...string) {
	h.Helper()
	h.StartIn("", append([]string{"--advertise", cmp.Or(h.Advertise, h.Address), "--api", h.Address + ":7480",
		"--boot", h.Address + ":7481", "--tftp", h.Address + ":7069",
		"--dhcp-listen", h.Address + ":7067"}, flags...)...)
}

// StartIn starts the head in a network namespace with these flags only.
func (h *Head) StartIn(namespace string, flags ...string) {
	h.Helper()
	ipxe := filepath.Join(h.TempDir(), "ipxe")
	if err := WriteBootFiles(ipxe); err != nil {
		h.Fatal(err)
	}
	args := append([]string{"server", "--data-dir", h.Dir, "--ipxe", ipxe}, flags...)
	line := append(append(slices.Clone(h.Prefix), Program(h.T)), args...)
	h.RunCommand(Command(namespace, line[0], line[1:]...))
}

// WriteBootFiles writes the files that a head serves to firmware.
func WriteBootFiles(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{BootFile, "ipxe.efi", "snponly.efi"} {
		content := bytes.Repeat([]byte(name), BootFileRepeat)
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return err
}

// RunCommand starts a command as the head's process. It is killed at the end of the test, and its log is shown if the
// test failed.
func (h *Head) RunCommand(cmd *exec.Cmd) {
	h.Helper()
	p, err := Start(cmd)
	if err != nil {
		h.Fatal(err)
	}
	h.Process = p
	h.Cleanup(func() {
		p.Kill()
		for _, wrong := range []string{"DATA RACE", "\npanic: "} {
			if p.Log.Contains(wrong) {
				h.Errorf("%s: %s", h.Name, wrong)
			}
		}
		if h.Failed() {
			h.Logf("log of %s:\n%s", h.Name, p.Log)
		}
	})
}

// Up starts the head and waits until it is ready.
func (h *Head) Up(flags ...string) {
	h.Helper()
	h.Start(flags...)
	h.AwaitReady()
}

// AwaitReady waits until the head is ready.
func (h *Head) AwaitReady() {
	h.Helper()
	h.AwaitLog("msg=ready")
}

// AwaitLog waits until the head has logged a text.
func (h *Head) AwaitLog(text string) {
	h.Helper()
	if !h.Log.Await(text, Timeout) {
		h.Fatalf("%s has not logged %q:\n%s", h.Name, text, h.Log)
	}
}

// Stop ends the head by SIGTERM; its exit status must be 0.
func (h *Head) Stop() {
	h.Helper()
	h.Signal(syscall.SIGTERM)
	if status := h.AwaitExit(); status != 0 {
		h.Errorf("%s: exit status %d after SIGTERM, want 0", h.Name, status)
	}
}

// Kill ends the head's present process by SIGKILL and returns when it has ended.
func (h *Head) Kill() { h.Process.Kill() }

// AwaitExit waits for the end of the process and returns its exit status; below 0 if a signal ended it.
func (h *Head) AwaitExit() int {
	h.Helper()
	if err := h.Wait(Timeout); err != nil {
		h.Fatalf("%s: %v:\n%s", h.Name, err, h.Log)
	}
	return h.ExitCode()
}

// ExpectFailure expects the head to exit with status 1 and has logged all of these texts.
func (h *Head) ExpectFailure(texts ...string) {
	h.Helper()
	if status := h.AwaitExit(); status != 1 {
		h.Errorf("%s: exit status %d, want 1", h.Name, status)
	}
	for _, text := range texts {
		if !h.Log.Contains(text) {
			h.Errorf("%s has not logged %q:\n%s", h.Name, text, h.Log)
		}
	}
}

// Await calls try until it succeeds.
func (h *Head) Await(what string, try func() error) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), Timeout)
	defer cancel()
	if err := Eventually(ctx, try); err != nil {
		h.Fatalf("%s: %s: %v", h.Name, what, err)
	}
}

// AdminFile is the file of the administrator's credential.
func (h *Head) AdminFile() string { return cmp.Or(h.Admin, AdminFile(h.Dir)) }

// Credential returns the administrator's credential.
func (h *Head) Credential() client.Context {
	h.Helper()
	c, err := Admin(h.AdminFile())
	if err != nil {
		h.Fatal(err)
	}
	return c
}

// Trivet runs an operator command with the administrator's credential.
func (h *Head) Trivet(args ...string) (Result, error) {
	return h.trivet(Command("", Program(h.T), args...))
}

// TrivetStdin runs an operator command with a standard input.
func (h *Head) TrivetStdin(stdin string, args ...string) (Result, error) {
	cmd := Command("", Program(h.T), args...)
	cmd.Stdin = strings.NewReader(stdin)
	return h.trivet(cmd)
}

// TrivetAt runs an operator command that uses only one head.
func (h *Head) TrivetAt(at *Head, args ...string) (Result, error) {
	cmd := Command("", Program(h.T), args...)
	cmd.Env = append(os.Environ(), "TRIVET_ENDPOINTS="+at.API())
	return h.trivet(cmd)
}

func (h *Head) trivet(cmd *exec.Cmd) (Result, error) { return h.within(Timeout, cmd) }

// TrivetWithin runs an operator command that may take longer than others.
func (h *Head) TrivetWithin(limit time.Duration, args ...string) (Result, error) {
	return h.within(limit, Command("", Program(h.T), args...))
}

func (h *Head) within(limit time.Duration, cmd *exec.Cmd) (Result, error) {
	ctx, cancel := context.WithTimeout(h.Context(), limit)
	defer cancel()
	return CLI(ctx, cmd, h.AdminFile())
}

// MustTrivet runs an operator command that must succeed and returns its standard output.
func (h *Head) MustTrivet(args ...string) string {
	h.Helper()
	r, err := h.Trivet(args...)
	if err != nil {
		h.Fatal(err)
	}
	return strings.TrimSpace(r.Stdout)
}

// Apply applies records, which must succeed.
func (h *Head) Apply(yaml string) {
	h.Helper()
	if _, err := h.TrivetStdin(yaml, "apply", "-f", "-"); err != nil {
		h.Fatal(err)
	}
}

// Client returns a client with the administrator's credential for these heads; without any, for those of the
// credential. wait is how long it retries.
func (h *Head) Client(wait time.Duration, heads ...*Head) *client.Client {
	h.Helper()
	c := h.Credential()
	if len(heads) > 0 {
		c.Endpoints = nil
	}
	for _, o := range heads {
		c.Endpoints = append(c.Endpoints, o.API())
	}
	cl, err := client.New(client.Config{Endpoints: c.Endpoints, Trust: c.Trust, Token: cmp.Or(h.ClientToken, c.Token),
		RetryTimeout: wait})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(cl.Close)
	return cl
}
