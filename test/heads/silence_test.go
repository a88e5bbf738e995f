package heads_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab"
)

// switchAddress is this process's address at the switch that connects heads in namespaces.
const switchAddress = "10.99.1.1"

// A machine at work keeps its agent when the head that it uses is cut off from the other heads, which still have a
// quorum, and when a head is stopped for longer than after which a silent agent is lost. A head that was stopped marks
// what it reads before it has caught up.
func TestAgentIsNotLostWithItsHead(t *testing.T) {
	t.Parallel()
	all := switchedHeads(t)
	cl := all[0].client(all...)
	prepareSite(t, cl)
	ctx, off := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() {
		defer close(running)
		_ = labMachine(t, all[1]).Run(ctx)
	}()
	t.Cleanup(func() { off(); <-running })
	run := func() *trivet.Workflow {
		w, err := client.Of[trivet.Workflow](cl).Get(t.Context(), machine+"-1")
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	all[0].Await("the first action begins", func() error {
		w, err := client.Of[trivet.Workflow](cl).Get(t.Context(), machine+"-1")
		if err != nil || w.Status.Acked == 0 {
			return fmt.Errorf("%+v, %w", w, err)
		}
		return nil
	})

	used := slices.IndexFunc(all, func(h *head) bool { return h.Log.Contains("/agent/v1/hello status=200") })
	cutOff, others := all[used], slices.Delete(slices.Clone(all), used, used+1)
	reconnect := cutOff.cut(others)
	// The report of that needs a quorum: the agent has left the head that is cut off, which refused it, or was too slow.
	all[0].Await("the first action ends", func() error { return reached(run(), "two") })
	reconnect()

	stopped := others[0]
	stopped.Signal(syscall.SIGSTOP)
	late := others[1].client(others[1], cutOff)
	(&ledger{T: t, cl: late}).write()
	all[0].Await("the second action ends", func() error {
		w, err := client.Of[trivet.Workflow](late).Get(t.Context(), machine+"-1")
		return errors.Join(err, reached(w, "three"))
	})
	stopped.Signal(syscall.SIGCONT)
	for range 20 {
		reader := stopped.clientOnce(stopped)
		m, err := client.Of[trivet.Machine](reader).Get(t.Context(), machine)
		if err == nil && m.Labels["write1"] == "" && !reader.Stale() {
			t.Error("a head that was stopped reads what is old, and does not mark it")
		}
	}
	all[0].Await("the run ends", func() error {
		if w := run(); !w.Status.State.Ended() {
			return fmt.Errorf("%+v", w.Status)
		}
		return nil
	})
	if w := run(); w.Status.State != trivet.WorkflowSucceeded || w.Status.Resets != 0 {
		t.Errorf("the run is %s after %d lost agents: %+v", w.Status.State, w.Status.Resets, w.Status.Failure)
	}
}

// reached fails until a run has reached an action.
func reached(w *trivet.Workflow, action string) error {
	if w == nil || w.Status.Step(action).State == trivet.StepWaiting && !w.Status.State.Ended() {
		return fmt.Errorf("%s has not begun", action)
	}
	return nil
}

// prepareSite creates what a simulated machine needs, and provisions it: three actions, each longer than after which a
// silent agent is lost.
func prepareSite(t *testing.T, cl *client.Client) {
	t.Helper()
	blob, errBlob := cl.PutBlob(t.Context(), bytes.NewReader([]byte("kernel")), client.PutOptions{})
	_, errPlatform := client.Of[trivet.Platform](cl).Create(t.Context(), &trivet.Platform{
		Meta: trivet.Meta{Name: "p"}, Spec: trivet.PlatformSpec{Arch: "amd64", Version: "v", Kernel: blob, Initrd: blob}})
	_, errNetwork := client.Of[trivet.Network](cl).Create(t.Context(), &trivet.Network{
		Meta: trivet.Meta{Name: "switch"}, Spec: trivet.NetworkSpec{CIDR: netip.MustParsePrefix("10.99.1.0/24"),
			Ranges: []trivet.Range{{From: netip.MustParseAddr("10.99.1.100"), To: netip.MustParseAddr("10.99.1.200")}}}})
	createMachine(t, cl)
	_, errSite := client.Of[trivet.Site](cl).Modify(t.Context(), trivet.SiteName, func(s *trivet.Site) error {
		s.Spec.Platform, s.Spec.AgentTimeout = "p", trivet.Duration(6*time.Second)
		return nil
	})
	spec := trivet.TemplateSpec{}
	for _, name := range []string{"one", "two", "three"} {
		spec.Actions = append(spec.Actions, trivet.Action{Name: name, Use: "noop", With: map[string]any{"sleep": "10s"}})
	}
	_, errTemplate := client.Of[trivet.Template](cl).Create(t.Context(), &trivet.Template{
		Meta: trivet.Meta{Project: "default", Name: "t"}, Spec: spec})
	_, errProvision := client.Of[trivet.Provision](cl).Create(t.Context(), &trivet.Provision{
		Meta: trivet.Meta{Project: "default", Name: machine}, Spec: trivet.ProvisionSpec{Template: "t", Machine: machine}})
	err := errors.Join(errBlob, errPlatform, errNetwork, errSite, errTemplate, errProvision)
	if err != nil {
		t.Fatal(err)
	}
}

// labMachine is a simulated machine that boots from a head.
func labMachine(t *testing.T, h *head) *lab.Machine {
	mac, err := net.ParseMAC(knownMAC)
	if err != nil {
		t.Fatal(err)
	}
	return &lab.Machine{Name: machine, MAC: knownMAC, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Up: func() {}, Lease: func(ctx context.Context) (*dhcp.Lease, error) {
			conn, err := net.ListenPacket("udp4", switchAddress+":0")
			if err != nil {
				return nil, err
			}
			defer conn.Close()
			server := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(h.Address + ":7067"))
			lease, err := dhcp.Exchange(ctx, conn, server, dhcp.ClientConfig{
				MAC: mac, Relay: netip.MustParseAddr(switchAddress), Options: []dhcp.Option{
					dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"),
					dhcp.Text(dhcp.OptUserClass, "iPXE"), {Code: dhcp.OptArch, Value: []byte{0, 0}},
				}})
			if err == nil {
				hold(t, lease.Address.Addr())
			}
			return lease, err
		}}
}

// hold gives this host an address until the test ends.
func hold(t *testing.T, a netip.Addr) {
	of := a.String() + "/32 dev lo"
	mustIP(t, "address replace "+of)
	t.Cleanup(func() { _ = exec.Command("ip", strings.Fields("address del "+of)...).Run() }) // it may be gone
}

// switchedHeads returns a cluster of three heads, each in a network namespace of its own, at a switch.
func switchedHeads(t *testing.T) (all []*head) {
	t.Helper()
	ports := switched(t, 3)
	for i, port := range ports {
		h := newHead(t, fmt.Sprint("head", i))
		h.Address = fmt.Sprintf("10.99.1.%d", 10+i)
		flags := []string{"--advertise", h.Address, "--api", h.Address + ":7480", "--boot", h.Address + ":7481",
			"--tftp", "", "--dhcp-listen", h.Address + ":7067"}
		if i > 0 {
			flags = append(flags, "--join", all[0].API(), "--token", all[0].token())
		}
		h.StartIn(port, flags...)
		h.AwaitReady()
		all = append(all, h)
		if i > 0 {
			all[0].awaitMember(h.Name)
		}
	}
	return all
}

// switched returns network namespaces at a switch that this process is connected to: their addresses are 10.99.1.10
// and so on.
func switched(t *testing.T, count int) (ports []string) {
	t.Helper()
	n := namespaces.Add(1)
	bridge := fmt.Sprintf("sw%d-%d", os.Getpid()%100000, n)
	commands := []string{"link add " + bridge + " type bridge forward_delay 0 mcast_snooping 0",
		"address add " + switchAddress + "/24 dev " + bridge, "link set " + bridge + " up"}
	for i := range count {
		port, link := fmt.Sprintf("%s-%d", bridge, i), fmt.Sprintf("%s%c", bridge, 'a'+i)
		ports = append(ports, port)
		commands = append(commands, "netns add "+port, "link add "+link+" type veth peer name eth0 netns "+port,
			"link set "+link+" master "+bridge+" up", "-n "+port+" link set lo up",
			fmt.Sprintf("-n %s address add 10.99.1.%d/24 dev eth0", port, 10+i), "-n "+port+" link set eth0 up")
	}
	t.Cleanup(func() {
		for _, port := range ports {
			_ = exec.Command("ip", "netns", "del", port).Run() // it may not exist
		}
		_ = exec.Command("ip", "link", "del", bridge).Run() // the same
	})
	for _, args := range commands {
		mustIP(t, args)
	}
	return ports
}

func mustIP(t *testing.T, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s (apt-get install iproute2)", args, err, out)
	}
}

// cut makes a head drop all that it sends to other heads. Machines and programs still reach it.
func (h *head) cut(others []*head) (undo func()) {
	h.Helper()
	change := func(what string) {
		for _, o := range others {
			args := fmt.Sprintf("-t %d -n ip route %s blackhole %s/32", h.PID(), what, o.Address)
			if out, err := exec.Command("nsenter", strings.Fields(args)...).CombinedOutput(); err != nil {
				h.Fatalf("nsenter %s: %v: %s", args, err, out)
			}
		}
	}
	change("add")
	return func() { change("del") }
}
