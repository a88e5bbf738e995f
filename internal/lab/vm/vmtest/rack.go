// Package vmtest provides tests with a lab network and the servers that machines boot from: dnsmasq for DHCP and TFTP,
// and net/http for the rest. They are the reference for Trivet's own servers.
package vmtest

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/lab/vm"
)

// Packages is the command that installs what this package runs.
const Packages = vm.Packages + " dnsmasq-base ipxe"

// The address of the servers of a rack, and the URL of its HTTP server.
const (
	Address = "10.77.0.1"
	URL     = "http://" + Address + ":8080"
)

// Rack is a network with its servers, which stop at the end of the test.
type Rack struct {
	Net *vm.Network
	Dir string // files in it are served by HTTP and TFTP
	t   *testing.T

	mu       sync.Mutex
	script   string // guarded by mu, as all below
	requests []string
	handlers map[string]http.HandlerFunc
}

// NewRack starts a rack under a unique name. If packages are missing, it fails the test with the command that installs
// them.
func NewRack(t *testing.T, name string) *Rack {
	t.Helper()
	skipShort(t)
	for _, program := range []string{"dnsmasq", "qemu-system-x86_64", "qemu-img", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v; run: %s", err, Packages)
		}
	}
	n, err := vm.NewNetwork(t.Context(), name, netip.MustParsePrefix(Address+"/24"))
	if err != nil {
		t.Fatalf("%v (requires root)", err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	r := &Rack{Net: n, Dir: t.TempDir(), t: t, handlers: map[string]http.HandlerFunc{}}
	for _, file := range []string{"snponly.efi", "undionly.kpxe"} {
		r.Serve(file, "/usr/lib/ipxe/"+file)
	}
	r.startHTTP()
	r.startDNSMasq()
	return r
}

// skipShort skips a test that boots machines in short mode.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots machines: not in a short run")
	}
}

// Serve adds a file to the servers under a name.
func (r *Rack) Serve(name, file string) {
	r.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatalf("%v; run: %s", err, Packages)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, name), data, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// Script sets the boot script.
func (r *Rack) Script(lines ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = "#!ipxe\n" + strings.Join(lines, "\n") + "\n"
}

// Handle sets the handler of a path.
func (r *Rack) Handle(path string, h http.HandlerFunc) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handlers[path] = h
}

// Requests returns the paths of the HTTP requests since the last call, in order.
func (r *Rack) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.requests
	r.requests = nil
	return all
}

func (r *Rack) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	if req.Method != http.MethodHead {
		r.requests = append(r.requests, req.URL.Path)
	}
	script, handler := r.script, r.handlers[req.URL.Path]
	r.mu.Unlock()
	switch {
	case handler != nil:
		handler(w, req)
	case req.URL.Path == "/boot.ipxe":
		_, _ = io.WriteString(w, script) // a client that has gone retries
	default:
		http.FileServer(http.Dir(r.Dir)).ServeHTTP(w, req)
	}
}

func (r *Rack) startHTTP() {
	var l net.Listener
	err := r.Net.Do(func() (err error) {
		l, err = net.Listen("tcp4", strings.TrimPrefix(URL, "http://"))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	srv := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(l) // until it is closed
	}()
	r.t.Cleanup(func() {
		srv.Close()
		<-done
	})
}

// dnsmasqArgs returns the arguments by which dnsmasq serves iPXE to firmware, and the script to iPXE.
func (r *Rack) dnsmasqArgs() []string {
	return []string{
		"--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=lab0", "--bind-interfaces",
		"--log-facility=-",
		"--dhcp-range=10.77.0.100,10.77.0.200,2m", "--dhcp-leasefile=" + filepath.Join(r.t.TempDir(), "leases"),
		"--pid-file=",
		"--no-ping", "--domain=lab.test", "--dhcp-option=6," + Address, "--enable-tftp", "--tftp-root=" + r.Dir,
		"--user=root",
		"--dhcp-userclass=set:ipxe,iPXE", "--dhcp-vendorclass=set:http,HTTPClient",
		"--dhcp-match=set:efi,option:client-arch,7",
		"--dhcp-option-force=tag:http,60,HTTPClient",
		"--dhcp-boot=tag:ipxe," + URL + "/boot.ipxe",
		"--dhcp-boot=tag:!ipxe,tag:http," + URL + "/snponly.efi",
		"--dhcp-boot=tag:!ipxe,tag:!http,tag:efi,snponly.efi",
		"--dhcp-boot=tag:!ipxe,tag:!http,tag:!efi,undionly.kpxe",
	}
}

func (r *Rack) startDNSMasq() {
	cmd := exec.Command("dnsmasq", r.dnsmasqArgs()...)
	out, err := cmd.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	stop, err := vm.Start(r.Net, cmd)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(stop)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "TFTP root is") { // its last line before it serves
			go func() { _, _ = io.Copy(io.Discard, out) }() // until it ends
			return
		}
	}
	r.t.Fatal("dnsmasq did not start")
}

// Machine adds a machine to the rack. Its console is logged if the test fails.
func (r *Rack) Machine(c vm.Config) *vm.Machine {
	r.t.Helper()
	c.Dir = filepath.Join(r.t.TempDir(), c.Name)
	if c.MAC == nil {
		c.MAC = MAC
	}
	m, err := vm.NewMachine(r.t.Context(), r.Net, c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := m.Close(); err != nil {
			r.t.Error(err)
		}
		if log, err := os.ReadFile(filepath.Join(c.Dir, "serial.log")); err == nil && r.t.Failed() {
			r.t.Logf("end of the console of %s:\n%s", c.Name, log[max(0, len(log)-8<<10):])
		}
	})
	return m
}

// MAC is the default MAC of a machine.
var MAC = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}

// timeout bounds the wait for a machine. It is long enough for a slow host.
const timeout = 4 * time.Minute

// Expect waits for the console to match and returns the match and its groups.
func (r *Rack) Expect(m *vm.Machine, re string) []string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), timeout)
	defer cancel()
	match, err := m.Console.Expect(ctx, regexp.MustCompile(re))
	if err != nil {
		r.t.Fatal(err)
	}
	return match
}

// WaitOff waits until the machine is off.
func (r *Rack) WaitOff(m *vm.Machine) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), timeout)
	defer cancel()
	if err := m.WaitOff(ctx); err != nil {
		r.t.Fatal(err)
	}
}
