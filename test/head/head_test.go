// Package head_test treats one head badly: the real program, on addresses of loopback, with bad input, bad disks, bad
// clocks and signals. After each of them the head must still do its work, or have said why it cannot.
package head_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
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
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/test/tftpclient"
)

// patience bounds every wait of these tests for something that must come.
const patience = 30 * time.Second

// head is one running head.
type head struct {
	*testing.T
	dir  string
	host string // its own address
	// admin is the administrator's file; empty: the head's.
	admin string
	cmd   *exec.Cmd
	log   *transcript
	done  chan struct{} // closed when it has ended, with err
	err   error
}

var fixedTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var hosts atomic.Uint32

// ownHost gives an address of loopback that no other test uses.
func ownHost() string {
	n := hosts.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 64+os.Getpid()%128, n>>8, n&0xff)
}

func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TRIVET")
	if path == "" {
		t.Fatal("TRIVET is not set: run make test, or make build && TRIVET=$PWD/bin/trivet go test ./test/head")
	}
	return path
}

// newHead starts a head on a new folder, which knows one machine, and waits until it is ready.
func newHead(t *testing.T) *head {
	t.Helper()
	h := startHead(t, filepath.Join(t.TempDir(), "data"))
	h.apply(site)
	return h
}

const (
	knownMAC = "52:54:00:00:00:01"
	bootFile = "undionly.kpxe"
	site     = `
kind: Network
name: lo
spec:
  cidr: 127.0.0.0/8
  ranges: [{from: 127.9.9.1, to: 127.9.9.200}]
---
kind: Machine
name: m1
labels: {rack: r1}
spec:
  nics: [{mac: "52:54:00:00:00:01"}]
`
)

// startHead starts a head on a folder and waits until it is ready.
func startHead(t *testing.T, dir string) *head {
	t.Helper()
	h := launch(t, dir, ownHost())
	h.awaitReady()
	return h
}

// launch starts a head; it may not come up.
func launch(t *testing.T, dir, host string, more ...string) *head {
	t.Helper()
	h := &head{T: t, dir: dir, host: host, log: newTranscript(), done: make(chan struct{})}
	h.cmd = exec.Command(binary(t), append([]string{"server", "--data-dir", dir, "--advertise", host, "--ipxe", programs(t),
		"--api", host + ":7480", "--boot", host + ":7481", "--tftp", host + ":7069", "--dhcp-listen", host + ":7067"}, more...)...)
	h.cmd.Stdout, h.cmd.Stderr = h.log, h.log
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.err = h.cmd.Wait(); h.log.end(); close(h.done) }()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill() // it may have ended
		<-h.done
		if t.Failed() {
			t.Logf("the head said:\n%s", h.log)
		}
	})
	return h
}

// programs is a folder with what machines boot.
func programs(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{bootFile, "snponly.efi"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte(name), 3000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (h *head) awaitReady() {
	h.Helper()
	if !h.log.await("msg=ready", patience) {
		h.Fatal("the head is not ready")
	}
}

func (h *head) signal(s syscall.Signal) {
	h.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.Fatal(err)
	}
}

// ended waits for the program's end and gives its exit status; below 0 if a signal ended it.
func (h *head) ended() int {
	h.Helper()
	select {
	case <-h.done:
	case <-time.After(patience):
		h.Fatal("the head does not end")
	}
	return h.cmd.ProcessState.ExitCode()
}

// trivet runs an operator's command and gives all that it said.
func (h *head) trivet(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary(h.T), args...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+h.adminFile())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (h *head) apply(yaml string) {
	h.Helper()
	if out, err := h.tryApply(yaml); err != nil {
		h.Fatalf("apply: %v\n%s", err, out)
	}
}

func (h *head) tryApply(yaml string) (string, error) {
	path := filepath.Join(h.TempDir(), "apply.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		h.Fatal(err)
	}
	return h.trivet("apply", "-f", path)
}

func (h *head) context() client.Context {
	h.Helper()
	f, err := client.ReadFile(h.adminFile())
	if err != nil {
		h.Fatal(err)
	}
	c, err := f.Pick("")
	if err != nil {
		h.Fatal(err)
	}
	return c
}

func (h *head) adminFile() string { return cmp.Or(h.admin, filepath.Join(h.dir, "admin.yaml")) }

// client is the administrator's.
func (h *head) client() *client.Client {
	h.Helper()
	c := h.context()
	cl, err := client.New(client.Config{Endpoints: c.Endpoints, Trust: c.Trust, Token: c.Token, Patience: -1})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(cl.Close)
	return cl
}

// mustServe asks every door of the head for something good.
func (h *head) mustServe() {
	h.Helper()
	h.mustRead()
	h.mustBoot()
	label := fmt.Appendf(nil, `{"labels":{"touched":"%d"}}`, time.Now().UnixNano())
	if _, err := client.Of[trivet.Machine](h.client()).Patch(h.Context(), "m1", label, 0); err != nil {
		h.Errorf("a write: %v", err)
	}
}

func (h *head) mustRead() {
	h.Helper()
	list, _, err := client.Of[trivet.Machine](h.client()).List(h.Context(), client.ListOptions{})
	if err != nil || len(list) != 1 || list[0].Name != "m1" {
		h.Errorf("a read: %v, %v", list, err)
	}
}

// mustBoot gets an address, a program by TFTP, and a script for the known machine.
func (h *head) mustBoot() {
	h.Helper()
	if lease, err := h.lease(); err != nil || !strings.Contains(lease.BootFile, "/boot/script/") {
		h.Errorf("DHCP: %v, %v", lease, err)
	}
	var program bytes.Buffer
	n, err := tftpclient.Get(h.Context(), netip.MustParseAddrPort(h.host+":7069"), bootFile, &program, tftpclient.Options{})
	if err != nil || n != int64(3000*len(bootFile)) {
		h.Errorf("TFTP: %d bytes, %v", n, err)
	}
	resp, err := http.Get("http://" + h.host + ":7481/boot/script/" + knownMAC)
	if err != nil {
		h.Errorf("boot script: %v", err)
		return
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); resp.StatusCode != http.StatusOK || line != "#!ipxe\n" {
		h.Errorf("boot script: %s, %q, %v", resp.Status, line, err)
	}
}

// lease asks for the known machine's address as iPXE does.
func (h *head) lease() (*dhcp.Lease, error) {
	mac, err := net.ParseMAC(knownMAC)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	server := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(h.host + ":7067"))
	return dhcp.Exchange(h.Context(), conn, server, dhcp.ClientConfig{
		MAC: mac, Relay: netip.MustParseAddr("127.0.0.1"),
		Options: []dhcp.Option{
			dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"), dhcp.Text(dhcp.OptUserClass, "iPXE"),
			{Code: dhcp.OptArch, Value: []byte{0, 0}},
		},
	})
}

// transcript is what a program says, for who waits for a word of it.
type transcript struct {
	mu    sync.Mutex
	text  bytes.Buffer  // guarded by mu
	grew  chan struct{} // guarded by mu; closed and replaced at each write
	ended bool          // guarded by mu
}

func newTranscript() *transcript { return &transcript{grew: make(chan struct{})} }

func (w *transcript) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.grew)
	w.grew = make(chan struct{})
	return w.text.Write(b)
}

func (w *transcript) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	close(w.grew)
	w.grew = make(chan struct{})
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits for a text, and says whether it came before the program's end and the limit.
func (w *transcript) await(text string, limit time.Duration) bool {
	late := time.After(limit)
	for {
		w.mu.Lock()
		found, ended, grew := strings.Contains(w.text.String(), text), w.ended, w.grew
		w.mu.Unlock()
		if found || ended {
			return found
		}
		select {
		case <-grew:
		case <-late:
			return false
		}
	}
}
