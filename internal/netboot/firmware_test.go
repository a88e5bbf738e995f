package netboot_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/tftp"
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
		r.until(t, func(ctx context.Context) error {
			defer context.AfterFunc(ctx, func() { web.Close() })()
			return web.Serve(l)
		})
		return nil
	}))
}
