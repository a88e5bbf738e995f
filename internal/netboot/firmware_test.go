package netboot_test

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/tftp"
	"github.com/trivet-project/trivet/internal/wait"
)

// bootSector prints a word to the first serial port and halts: a disk that says that it was booted.
func bootSector() []byte {
	code := []byte{
		0xbe, 0x14, 0x7c, // mov si, message
		0xba, 0xf8, 0x03, // mov dx, COM1
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x03, // jz done
		0xee,       // out dx, al
		0xeb, 0xf8, // jmp next
		0xf4,       // done: hlt
		0xeb, 0xfd, // jmp done
		0, 0, 0,
	}
	sector := make([]byte, 512)
	copy(sector, code)
	copy(sector[0x14:], "\r\nFROM THE DISK\r\n")
	sector[510], sector[511] = 0x55, 0xaa
	return sector
}

// Real firmware boots the installer, and the disk once the machine is active.
func TestFirmware(t *testing.T) {
	if testing.Short() {
		t.Skip("boots three machines")
	}
	if os.Getuid() != 0 {
		t.Fatal("this test makes a network namespace: run it as root")
	}
	network, err := vm.NewNetwork(t.Context(), "netboot-test", netip.MustParsePrefix("10.0.0.1/24"))
	if err != nil {
		t.Fatalf("%v (%s)", err, vm.Packages)
	}
	t.Cleanup(func() { _ = network.Close() })
	for _, f := range []vm.Firmware{vm.BIOS, vm.UEFIPXE, vm.UEFIHTTP} {
		t.Run(string(f), func(t *testing.T) {
			bootBy(t, network, f)
		})
	}
}

func bootBy(t *testing.T, network *vm.Network, firmware vm.Firmware) {
	r := newFixture(t)
	r.withPlatform(t)
	r.open(t, netboot.Config{Blobs: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = w.Write(make([]byte, 1<<20)) // no kernel, and too long for iPXE to take it for a boot program
	})})
	r.run(t, trivet.WorkflowBooting, trivet.StepPowerOn)
	r.serveLab(t, network)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	mac, err := net.ParseMAC(knownMAC)
	must(t, err)
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.WriteFile(disk, append(bootSector(), make([]byte, 1<<20)...), 0o600))
	m, err := vm.NewMachine(ctx, network, vm.Config{Name: "m1-" + string(firmware), MAC: mac, Firmware: firmware,
		Dir: t.TempDir(), MemoryMB: 512, Disks: []vm.Disk{{Path: disk}}})
	must(t, err)
	defer m.Close()
	must(t, m.PowerOn(ctx))
	for _, step := range []string{trivet.StepDHCP, trivet.StepScript, trivet.StepKernel} {
		r.awaitStep(t, ctx, "m1 "+step)
	}
	r.write(t, func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get("m1")
		must(t, err)
		m.Status.State = trivet.MachineActive
		return r.Machines.In(tx).Put(m)
	})
	want := regexp.MustCompile(`FROM THE DISK`)
	if firmware != vm.BIOS {
		want = regexp.MustCompile(`Shell`)
	}
	if _, err := m.Console.Expect(ctx, want); err != nil {
		t.Fatal(err)
	}
}

// Firmware that has the boot CA enrolled loads its boot program by HTTPS, and so verifies the head. With the CA of
// another cluster it loads nothing. After a rotation, firmware with the former boot CA does as before, and so does that
// with the new one.
func TestFirmwareVerifiesTheHead(t *testing.T) {
	if testing.Short() {
		t.Skip("boots four machines")
	}
	if os.Getuid() != 0 {
		t.Fatal("this test makes a network namespace: run it as root")
	}
	network, err := vm.NewNetwork(t.Context(), "netboot-https", netip.MustParsePrefix("10.0.0.1/24"))
	if err != nil {
		t.Fatalf("%v (%s)", err, vm.Packages)
	}
	t.Cleanup(func() { _ = network.Close() })
	r, reg := newFixture(t), prometheus.NewRegistry()
	r.withPlatform(t)
	r.open(t, netboot.Config{Registry: reg, TLS: r.keys.BootTLS(func() []string { return []string{"10.0.0.1"} })})
	r.run(t, trivet.WorkflowBooting, trivet.StepPowerOn)
	r.write(t, func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.BootHTTPS = true
		return r.Networks.In(tx).Put(n)
	})
	r.serveLab(t, network)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	other, err := auth.Init(t.TempDir()+"/keys", "test")
	must(t, err)

	refused := func(what string, ca *auth.BootCA) {
		t.Helper()
		before, completed := handshakes(t, reg, "failed"), handshakes(t, reg, "completed")
		m := enrolled(t, ctx, network, ca)
		for handshakes(t, reg, "failed") == before {
			if wait.Sleep(ctx, 100*time.Millisecond) != nil {
				t.Fatalf("%s: it has begun no handshake", what)
			}
		}
		m.PowerOff()
		if got := r.requested(); len(got) > 0 || handshakes(t, reg, "completed") > completed {
			t.Errorf("%s: it requested %q", what, got)
		}
	}
	boots := func(what string, ca *auth.BootCA) {
		t.Helper()
		m := enrolled(t, ctx, network, ca)
		for !slices.Contains(r.requested(), "GET https /ipxe/snponly.efi") {
			if wait.Sleep(ctx, 100*time.Millisecond) != nil {
				t.Fatalf("%s: it requested %q", what, r.requested())
			}
		}
		r.awaitScript(t, ctx, what)
		m.PowerOff()
		if got := r.requested(); slices.Contains(got, "GET http /ipxe/snponly.efi") {
			t.Errorf("%s: it requested %q", what, got)
		}
		r.forgetRequests()
	}
	refused("firmware that trusts another CA", other.BootCA())
	old := r.keys.BootCA()
	boots("firmware that trusts the CA", old)
	dir := t.TempDir()
	pin, err := r.keys.CreateBootCA(dir)
	must(t, err)
	must(t, r.keys.UseBootCA(dir, pin, true))
	boots("firmware that trusts the former CA", old)
	boots("firmware that trusts the new CA", r.keys.BootCA())
}

// awaitScript waits until a machine has requested its boot script.
func (r *fixture) awaitScript(t *testing.T, ctx context.Context, what string) {
	t.Helper()
	script := func(s string) bool { return strings.Contains(s, "/boot/script") }
	for !slices.ContainsFunc(r.requested(), script) {
		if wait.Sleep(ctx, 100*time.Millisecond) != nil {
			t.Fatalf("%s: no boot script was requested, but %q", what, r.requested())
		}
	}
}

// enrolled powers on m1 with a boot CA in its firmware.
func enrolled(t *testing.T, ctx context.Context, network *vm.Network, ca *auth.BootCA) *vm.Machine {
	t.Helper()
	block, _ := pem.Decode(ca.PEM())
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/cacerts", auth.SignatureList(block.Bytes), 0o600))
	mac, err := net.ParseMAC(knownMAC)
	must(t, err)
	m, err := vm.NewMachine(ctx, network, vm.Config{Name: "m1", MAC: mac, Firmware: vm.UEFIHTTP, Dir: dir,
		MemoryMB: 512, Args: []string{"-fw_cfg", "name=etc/edk2/https/cacerts,file=" + dir + "/cacerts"}})
	must(t, err)
	t.Cleanup(func() { _ = m.Close() })
	must(t, m.PowerOn(ctx))
	return m
}

// awaitStep waits until a boot reaches a step.
func (r *fixture) awaitStep(t *testing.T, ctx context.Context, what string) {
	t.Helper()
	for {
		select {
		case <-r.reports:
		case <-ctx.Done():
			t.Fatalf("no %s; reached %q", what, r.steps)
		}
		r.mu.Lock()
		found := slices.Contains(r.steps, what)
		r.mu.Unlock()
		if found {
			return
		}
	}
}

// serveLab runs the listeners of the server in the lab's network, on the ports that firmware asks.
func (r *fixture) serveLab(t *testing.T, network *vm.Network) {
	t.Helper()
	must(t, network.Do(func() error {
		d, err := dhcp.Listen(dhcp.Config{Handler: r.Server, Interfaces: []string{"lab0"}})
		if err != nil {
			return err
		}
		r.until(t, d.Serve)
		conn, err := net.ListenUDP("udp", &net.UDPAddr{Port: 69})
		if err != nil {
			return err
		}
		r.until(t, func(ctx context.Context) error { return (&tftp.Server{Open: r.OpenTFTP}).Serve(ctx, conn) })
		l, err := net.Listen("tcp", ":8080")
		if err != nil {
			return err
		}
		web := r.HTTPServer()
		web.Handler = r.recorded(web.Handler)
		r.until(t, func(ctx context.Context) error {
			defer context.AfterFunc(ctx, func() { web.Close() })()
			return web.Serve(r.Server.Listen(l))
		})
		return nil
	}))
}

// recorded notes the requests to a handler.
func (r *fixture) recorded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		scheme := "http"
		if q.TLS != nil {
			scheme = "https"
		}
		r.mu.Lock()
		r.requests = append(r.requests, q.Method+" "+scheme+" "+q.URL.Path)
		r.mu.Unlock()
		next.ServeHTTP(w, q)
	})
}

// forgetRequests drops what was noted.
func (r *fixture) forgetRequests() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
}

// requested returns the requests that were noted.
func (r *fixture) requested() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}
