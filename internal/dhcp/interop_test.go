package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// serveInterface serves the interface "server", and returns each packet.
func serveInterface(t *testing.T, h HandlerFunc) (served, chan *Packet) {
	t.Helper()
	requests := make(chan *Packet, 1000)
	return start(t, Config{Interfaces: []string{"server"}, Proxy: true, Metrics: NewMetrics(prometheus.NewRegistry()),
		Handler: HandlerFunc(func(ctx context.Context, r *Packet) *Reply {
			requests <- r
			return h(ctx, r)
		})}), requests
}

const udhcpc = "busybox udhcpc -f -i client -t 5 -T 1 -s testdata/udhcpc.sh"

// A client that accepts unicast before it has an address gets frames; its renewal is answered by unicast.
func TestUdhcpc(t *testing.T) {
	n := newNetwork(t)
	s, requests := serveInterface(t, fixed)
	client := n.start(n.pid, udhcpc)
	want := " ip=10.99.0.50/24 router=10.99.0.1 dns=10.99.0.1 domain=lab boot=boot.efi siaddr=10.99.0.1 lease=3600"
	if got := client.until("ip="); got != "bound"+want {
		t.Fatalf("got %q", got)
	}
	discover, ask := <-requests, <-requests
	if discover.Interface != "server" || discover.Local != testServer || discover.Unicast || ask.Phase() != Selecting {
		t.Fatalf("discover %+v, request %+v", discover, ask)
	}
	if err := client.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if got := client.until("ip="); got != "renew"+want {
		t.Fatalf("got %q", got)
	}
	if r := <-requests; r.Phase() != Renewing || r.From.Addr() != testAddr || r.Local != testServer {
		t.Fatalf("renewal %+v", r)
	}
	// It may miss the first answer: it sends before it listens. Then it retransmits.
	s.stop()
	unicast := max(count(s.Metrics.answers[answer{Ack, toUnicast}]), 1)
	s.answered(t, map[answer]int{{Offer, toFrame}: 1, {Ack, toFrame}: 1, {Ack, toUnicast}: unicast})
}

func TestUdhcpcBroadcast(t *testing.T) {
	n := newNetwork(t)
	s, _ := serveInterface(t, fixed)
	n.start(n.pid, udhcpc+" -B").until("bound ip=10.99.0.50/24")
	s.answered(t, map[answer]int{{Offer, toAll}: 1, {Ack, toAll}: 1})
}

// Without the privilege to send frames answers are broadcast; clients accept both.
func TestFramesFailing(t *testing.T) {
	n := newNetwork(t)
	s, err := Listen(Config{Handler: HandlerFunc(fixed), Interfaces: []string{"server"}})
	if err != nil {
		t.Fatal(err)
	}
	s.frames.file.Close()
	running := run(t, s)
	n.start(n.pid, udhcpc).until("bound ip=10.99.0.50/24")
	running.answered(t, map[answer]int{{Offer, toAll}: 1, {Ack, toAll}: 1})
}

func TestDhclient(t *testing.T) {
	n := newNetwork(t)
	s, requests := serveInterface(t, fixed)
	dir := t.TempDir()
	leases := filepath.Join(dir, "leases")
	n.client("dhclient -1 -v -sf /bin/true -cf /dev/null -lf " + leases + " -pf " + filepath.Join(dir, "pid") +
		" client")
	t.Cleanup(func() { n.client("dhclient -x -sf /bin/true -pf " + filepath.Join(dir, "pid") + " client") })
	text, err := os.ReadFile(leases)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fixed-address 10.99.0.50;", `filename "boot.efi";`, "option routers 10.99.0.1;",
		"option subnet-mask 255.255.255.0;", "option dhcp-server-identifier 10.99.0.1;", `option domain-name "lab";`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	s.answered(t, map[answer]int{{Offer, toFrame}: 1, {Ack, toFrame}: 1})
	if r := <-requests; r.Broadcast() {
		t.Fatalf("%+v", r)
	}
}

// A client that asks for a previous address that is refused.
func TestUdhcpcNak(t *testing.T) {
	n := newNetwork(t)
	s, _ := serveInterface(t, func(ctx context.Context, r *Packet) *Reply {
		if r.Type() == Request {
			return &Reply{Type: Nak, Server: r.Local, Options: []Option{Text(OptMessage, "gone")}}
		}
		return fixed(ctx, r)
	})
	if got := n.start(n.pid, udhcpc).until("nak"); !strings.Contains(got, "nak") {
		t.Fatal(got)
	}
	s.stop()
	if got := count(s.Metrics.answers[answer{Nak, toAll}]); got < 1 {
		t.Fatalf("%d NAKs", got)
	}
}

// A real relay between client and server: answers go to its address on the client's network, with its option.
func TestRelay(t *testing.T) {
	n := newNetwork(t)
	s, requests := serveInterface(t, fixed)
	n.client("ip addr add 10.99.0.2/24 dev client") // the relay is in the namespace "client"
	behind := hold(t)
	n.client("ip link add inner type veth peer name client netns " + behind)
	n.client("ip addr add 10.98.0.1/24 dev inner")
	n.client("ip link set inner up")
	n.run("nsenter -n -t " + behind + " ip link set client up")
	n.run("ip route add 10.98.0.0/24 via 10.99.0.2")
	relay := n.start(n.pid, "dhcrelay -4 -d -a -id inner -iu client 10.99.0.1")
	relay.until("Sending on   Socket")
	n.start(behind, udhcpc).until("bound ip=10.99.0.50/24")
	s.answered(t, map[answer]int{{Offer, toRelay}: 1, {Ack, toRelay}: 1})
	r := <-requests
	if circuit, ok := r.RelayOption(RelayCircuitID); r.Relay().String() != "10.98.0.1" || !ok ||
		string(circuit) != "inner" ||
		r.Link() != r.Relay() {
		t.Fatalf("request %+v, circuit %q", r, circuit)
	}
}

// The client of the installer: on an interface without an address, by a raw socket; then its renewals.
func TestAcquire(t *testing.T) {
	n := newNetwork(t)
	s, requests := serveInterface(t, fixed)
	lease, err := inNamespace(n.pid, func() (*Lease, error) { return Acquire(t.Context(), "client", ClientConfig{}) })
	if err != nil {
		t.Fatal(err)
	}
	if lease.Address.String() != "10.99.0.50/24" || lease.Server != testServer || lease.BootFile != "boot.efi" {
		t.Fatalf("lease %+v", lease)
	}
	if r := <-requests; r.Broadcast() {
		t.Fatalf("request %+v", r)
	}
	n.client("ip addr add 10.99.0.50/24 dev client")
	again, err := inNamespace(n.pid, func() (*Lease, error) {
		conn, err := net.ListenPacket("udp4", "10.99.0.50:68")
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		server := &net.UDPAddr{IP: lease.Server.AsSlice(), Port: ServerPort}
		return Renew(t.Context(), conn, server, ClientConfig{MAC: testMAC}, lease)
	})
	if err != nil || again.Address != lease.Address {
		t.Fatalf("renewed %+v, %v", again, err)
	}
	lease.Server = netip.MustParseAddr("10.99.0.99") // no host: any server may renew the lease
	again, err = inNamespace(n.pid, func() (*Lease, error) {
		return Extend(t.Context(), "client", ClientConfig{Timeout: 50 * time.Millisecond, Attempts: 5}, lease)
	})
	if err != nil || again.Address != lease.Address || again.Server != testServer {
		t.Fatalf("extended %+v, %v", again, err)
	}
	s.stop()
	s.answered(t, map[answer]int{{Offer, toFrame}: 1, {Ack, toFrame}: 1, {Ack, toUnicast}: 2})
}

// A server broadcasts its NAK of a renewal.
func TestExtendIsRefused(t *testing.T) {
	n := newNetwork(t)
	serveInterface(t, func(_ context.Context, r *Packet) *Reply { return &Reply{Type: Nak, Server: r.Local} })
	n.client("ip addr add 10.99.0.50/24 dev client")
	lease := &Lease{Address: netip.MustParsePrefix("10.99.0.50/24"), Server: testServer}
	_, err := inNamespace(n.pid, func() (*Lease, error) {
		return Extend(t.Context(), "client", ClientConfig{Timeout: time.Second, Attempts: 1}, lease)
	})
	if !errors.Is(err, ErrRefused) {
		t.Fatalf("error %v", err)
	}
}

// inNamespace calls f in the network namespace of a process.
func inNamespace[T any](pid string, f func() (T, error)) (v T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		var file *os.File
		if file, err = os.Open("/proc/" + pid + "/ns/net"); err != nil {
			return
		}
		defer file.Close()
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		v, err = f()
	}()
	<-done
	return v, err
}

// PXE firmware asks the proxy port by unicast, from its own address and port.
func TestProxyPort(t *testing.T) {
	n := newNetwork(t)
	serveInterface(t, func(_ context.Context, r *Packet) *Reply {
		if r.Port != ProxyPort {
			return nil
		}
		return &Reply{Type: Ack, Server: r.Local, NextServer: r.Local, BootFile: "ipxe.efi", Class: r.Class()}
	})
	n.client("ip addr add 10.99.0.60/24 dev client")
	b, err := inNamespace(n.pid, func() ([]byte, error) {
		conn, err := net.Dial("udp4", "10.99.0.1:4011")
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		if _, err := conn.Write(clientPacket(t, Request, field(atCiaddr, "10.99.0.60"),
			Text(OptClass, "PXEClient"))); err != nil {
			return nil, err
		}
		b := make([]byte, maxReceive)
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		size, err := conn.Read(b)
		return b[:size], err
	})
	if err != nil {
		t.Fatal(err)
	}
	p := readAnswer(t, b)
	if !p.YourIPAddr.IsUnspecified() || p.BootFileName != "ipxe.efi" || p.ClassIdentifier() != "PXEClient" {
		t.Fatal(p.Summary())
	}
}

// A packet on an interface that is not served is not answered, and another server can serve the interface.
func TestInterfaceOfAnotherServer(t *testing.T) {
	n := newNetwork(t)
	n.connect("other", "10.97.0.1/24", n.pid, "client2")
	_, requests := serveInterface(t, fixed)
	got, err := inNamespace(n.pid, func() (*Lease, error) {
		return Acquire(t.Context(), "client2", ClientConfig{Timeout: 20 * time.Millisecond, Attempts: 2})
	})
	if err == nil || len(requests) != 0 {
		t.Fatalf("lease %+v, %d requests", got, len(requests))
	}
	start(t, Config{Handler: HandlerFunc(fixed), Interfaces: []string{"other"}})
	if _, err := inNamespace(n.pid, func() (*Lease, error) {
		return Acquire(t.Context(), "client2", ClientConfig{})
	}); err != nil || len(requests) != 0 {
		t.Fatalf("%v, %d requests", err, len(requests))
	}
}
