package netboot_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/netboot"
)

// serveUntilRequest runs two servers. The head whose offer is accepted loses its cable at that moment, and the other
// is not notified.
func (s *site) serveUntilRequest(t *testing.T, namespaces []*namespace) (cut *atomic.Bool) {
	t.Helper()
	cut = &atomic.Bool{}
	for i, h := range s.heads {
		s.serveIn(t, namespaces[i], h.Server, dhcp.HandlerFunc(func(ctx context.Context, r *dhcp.Packet) *dhcp.Reply {
			if r.Type() == dhcp.Request && r.ServerID() == h.addr && cut.CompareAndSwap(false, true) {
				namespaces[i].cut(t)
			}
			return h.ServeDHCP(ctx, r)
		}))
	}
	return cut
}

// Real clients get the address that they were offered by a head that is gone when they ask for it.
func TestClientsSurviveALostHead(t *testing.T) {
	for name, command := range map[string]string{
		"udhcpc":   "busybox udhcpc -f -q -n -i eth0 -t 5 -T 1 -s /bin/true",
		"dhclient": "dhclient -1 -v -d -sf /bin/true -cf DIR/conf -lf DIR/leases -pf DIR/pid eth0",
	} {
		t.Run(name, func(t *testing.T) {
			lab, namespaces := newSwitch(t)
			s := newSite(t, netboot.Config{})
			cut := s.serveUntilRequest(t, namespaces)
			client := newNamespace(t, lab.Name(), "client", "")
			dir := t.TempDir()
			must(t, os.WriteFile(dir+"/conf", []byte("initial-interval 1; backoff-cutoff 2; timeout 30;\n"), 0o600))
			args := strings.Fields(strings.ReplaceAll(command, "DIR", dir))
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", client.name}, args...)...)
			stderr, err := cmd.StderrPipe()
			must(t, err)
			must(t, cmd.Start())
			lines := bufio.NewScanner(stderr)
			got := ""
			for lines.Scan() && got == "" {
				if t.Log(lines.Text()); strings.Contains(lines.Text(), " of 10.0.0.") &&
					regexp.MustCompile("^(udhcpc: lease|bound|DHCPACK)").MatchString(lines.Text()) {
					got = regexp.MustCompile(`10\.0\.0\.1[5-9]\d`).FindString(lines.Text())
				}
			}
			stop()
			_ = cmd.Wait()
			if got == "" || !cut.Load() {
				t.Fatalf("got %q; the cable was cut: %t", got, cut.Load())
			}
			if a, err := s.Addresses.Get(got); err != nil || a.Spec.Network != "lan" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

// Real firmware, which accepts acknowledgements only of the server that it chose, boots although that one is gone.
func TestFirmwareSurvivesALostHead(t *testing.T) {
	if testing.Short() {
		t.Skip("boots machines")
	}
	for _, firmware := range []vm.Firmware{vm.BIOS, vm.UEFIPXE} {
		t.Run(string(firmware), func(t *testing.T) {
			lab, namespaces := newSwitch(t)
			s := newSite(t, netboot.Config{})
			s.withPlatform(t)
			s.run(t, trivet.WorkflowBooting, trivet.StepPowerOn)
			cut := s.serveUntilRequest(t, namespaces)
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
			defer stop()
			mac, err := net.ParseMAC(knownMAC)
			must(t, err)
			m, err := vm.NewMachine(ctx, lab, vm.Config{Name: "m1", MAC: mac, Firmware: firmware, Dir: t.TempDir(),
				MemoryMB: 512})
			must(t, err)
			defer m.Close()
			m.SetBoot(vm.BootNetwork)
			must(t, m.PowerOn(ctx))
			s.awaitStep(t, ctx, "m1 "+trivet.StepScript)
			if !cut.Load() {
				t.Error("no cable was cut")
			}
		})
	}
}

// A cable is cut while real iPXE fetches the kernel: it fetches all from the other head, however slow that is, and
// does not ask the first one again.
func TestCutCable(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a machine")
	}
	lab, namespaces := newSwitch(t)
	var cut atomic.Bool
	asked := make(chan string, 100)
	s := newSite(t, netboot.Config{Blobs: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		local := q.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr).IP.String()
		asked <- local + " " + q.URL.Path[len("/blob/sha256:"):][:1]
		w.Header().Set("Content-Length", fmt.Sprint(8<<18))
		if cut.CompareAndSwap(false, true) {
			_, _ = w.Write(make([]byte, 1<<18))
			must(t, http.NewResponseController(w).Flush())
			namespaces[local[len(local)-1]-'1'].cut(t)
		}
		for range 8 { // longer than the script's timeout, but never silent for as long
			_, _ = w.Write(make([]byte, 1<<18))
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(time.Second):
			case <-q.Context().Done():
				return
			}
		}
	})})
	s.withPlatform(t)
	s.run(t, trivet.WorkflowBooting, trivet.StepPowerOn)
	for i, h := range s.heads {
		s.serveIn(t, namespaces[i], h.Server, h.Server)
	}

	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	mac, err := net.ParseMAC(knownMAC)
	must(t, err)
	m, err := vm.NewMachine(ctx, lab, vm.Config{Name: "m1", MAC: mac, Firmware: vm.BIOS, Dir: t.TempDir(),
		MemoryMB: 512})
	must(t, err)
	defer m.Close()
	m.SetBoot(vm.BootNetwork)
	must(t, m.PowerOn(ctx))
	s.awaitStep(t, ctx, "m1 "+trivet.StepKernel)
	first, second := "10.0.0.1", "10.0.0.2"
	got := []string{}
	for range 3 {
		got = append(got, <-asked)
	}
	if strings.HasPrefix(got[0], second) {
		first, second = second, first
	}
	if want := fmt.Sprint([]string{first + " a", second + " a", second + " b"}); fmt.Sprint(got) != want {
		t.Errorf("fetched: %s, want %s", got, want)
	}
}
