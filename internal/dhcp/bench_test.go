package dhcp

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// benchClients have an address reserved; benchRates are the exchanges begun per second, for benchTime each.
const (
	benchClients = 5000
	benchTime    = 5 * time.Second
)

var benchRates = []int{4000, 6000, 8000, 9000, 10_000, 11_000, 12_000, 14_000, 16_000}

// BenchmarkDORA sends the exchanges of Kea's load generator to Kea with host reservations and leases in memfile,
// and to this server with the same addresses in a map. The server stores nothing: the result is an upper bound for
// a whole server. The generator saturates first on two cores, so that its own losses are counted apart. apt-get
// install kea-dhcp4-server kea-admin.
func BenchmarkDORA(b *testing.B) {
	n := newNetwork(b)
	n.run("ip addr replace 10.99.0.1/16 dev server")
	n.client("ip addr add 10.99.255.1/16 dev client")
	// Not in sub-benchmarks: they would run on another thread, outside of the namespace.
	stop, pid := startKea(n)
	n.climb(b, "kea", pid)
	stop()
	stop = startReserved(b)
	n.climb(b, "trivet", os.Getpid())
	stop()
	b.ReportMetric(0, "ns/op")
}

// climb raises the rate until too many exchanges are lost. It reports the highest rate with at most 0.2 %
// unanswered (perfdhcp always leaves 0.08 % at its end), without the generator's own losses.
func (n *network) climb(b *testing.B, name string, pid int) {
	n.perfdhcp(2000, time.Second) // warms up
	best, all, cpu := 0, 0.0, cpuTime(b, pid)
	for _, rate := range benchRates {
		ourLoss, generatorLoss := lost(n.run(udpCounters)), lost(n.client(udpCounters))
		begun, acked := n.perfdhcp(rate, benchTime)
		ourLoss, generatorLoss = lost(n.run(udpCounters))-ourLoss, lost(n.client(udpCounters))-generatorLoss
		b.Logf("%-6s offered %5d/s: answered %5.0f/s, unanswered %6.3f %%; lost at the server's "+
			"socket %d, at the generator's %d",
			name, rate, acked/benchTime.Seconds(), 100*(1-acked/begun), ourLoss, generatorLoss)
		all += acked
		if begun-acked-float64(generatorLoss) < 0.002*begun && begun > 0.95*float64(rate)*benchTime.Seconds() {
			best = rate
		}
		if acked < 0.9*begun {
			break
		}
	}
	b.ReportMetric(float64(best), name+"-DORA/s")
	b.ReportMetric(float64((cpuTime(b, pid)-cpu).Microseconds())/all, name+"-cpu-µs/DORA")
}

// udpCounters are those of the namespace that the command runs in.
const udpCounters = "grep ^Udp: /proc/thread-self/net/snmp"

// lost returns how many datagrams exceeded a socket's buffer.
func lost(counters string) int {
	lines := strings.Split(strings.TrimSpace(counters), "\n")
	for i, name := range strings.Fields(lines[0]) {
		if name == "RcvbufErrors" {
			n, _ := strconv.Atoi(strings.Fields(lines[1])[i])
			return n
		}
	}
	return 0
}

// cpuTime returns the processor time of a process.
func cpuTime(b *testing.B, pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		b.Fatal(err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * 10 * time.Millisecond // proc(5): USER_HZ is 100
}

var (
	sentLine = regexp.MustCompile(`sent packets: (\d+)`)
	gotLine  = regexp.MustCompile(`received packets: (\d+)`)
)

// perfdhcp returns the number of exchanges started and of those that ended with an ACK.
func (n *network) perfdhcp(rate int, d time.Duration) (begun, acked float64) {
	n.t.Helper()
	cmd := exec.Command("nsenter", "-n", "-t", n.pid, "perfdhcp", "-4", "-l", "10.99.255.1", "-r", strconv.Itoa(rate),
		"-R", strconv.Itoa(benchClients), "-p", strconv.Itoa(int(d.Seconds())), "-W", "500000", "-g", "multi",
		"10.99.0.1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 0 && cmd.ProcessState.ExitCode() != 3 {
		n.t.Fatalf("perfdhcp: %v: %s (apt-get install kea-admin)", err, out)
	}
	// DISCOVER-OFFER comes first, REQUEST-ACK second.
	sent, got := sentLine.FindAllSubmatch(out, 2), gotLine.FindAllSubmatch(out, 2)
	if len(sent) != 2 || len(got) != 2 {
		n.t.Fatalf("perfdhcp printed %s", out)
	}
	number := func(m [][]byte) float64 { v, _ := strconv.ParseFloat(string(m[1]), 64); return v }
	return number(sent[0]), number(got[1])
}

// reserved returns the address of each of perfdhcp's clients.
func reserved() map[string]netip.Addr {
	m := make(map[string]netip.Addr, benchClients)
	mac, addr := uint64(0x000c01020304), netip.MustParseAddr("10.99.1.0")
	for i := range uint64(benchClients) {
		v := mac + i
		m[string([]byte{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})] = addr
		addr = addr.Next()
	}
	return m
}

func startReserved(b *testing.B) (stop func()) {
	addrs := reserved()
	network := netip.MustParsePrefix("10.99.0.0/16")
	return start(b, Config{Interfaces: []string{"server"}, Handler: HandlerFunc(
		func(_ context.Context, r *Packet) *Reply {
			addr, ok := addrs[string(r.MAC())]
			if !ok {
				return nil
			}
			reply := &Reply{Type: Offer, Server: r.Local, Address: addr, Lease: time.Hour}
			if r.Type() == Request {
				reply.Type = Ack
			}
			reply.Add(SubnetMask(network), Addrs(OptRouter, testServer), Addrs(OptDNS, testServer))
			return reply
		})}).stop
}

// startKea runs Kea in this namespace.
func startKea(n *network) (stop func(), pid int) {
	n.t.Helper()
	dir := n.t.TempDir()
	type object = map[string]any
	var hosts []object
	for mac, addr := range reserved() {
		hosts = append(hosts, object{"hw-address": net.HardwareAddr(mac).String(), "ip-address": addr.String()})
	}
	config, err := json.Marshal(object{"Dhcp4": object{
		"interfaces-config": object{"interfaces": []string{"server"}, "dhcp-socket-type": "udp"},
		"lease-database": object{"type": "memfile", "persist": true,
			"name": filepath.Join(dir, "leases.csv")},
		"host-reservation-identifiers": []string{"hw-address"},
		"valid-lifetime":               3600,
		"loggers": []object{{"name": "kea-dhcp4", "severity": "ERROR",
			"output_options": []object{{"output": "stderr"}}}},
		"subnet4": []object{{
			"id": 1, "subnet": "10.99.0.0/16", "reservations": hosts,
			"reservations-in-subnet": true, "reservations-out-of-pool": true,
			"option-data": []object{{"name": "routers", "data": "10.99.0.1"},
				{"name": "domain-name-servers", "data": "10.99.0.1"}},
		}},
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	path := filepath.Join(dir, "kea.json")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		n.t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := exec.Command("kea-dhcp4", "-c", path)
	cmd.Env = append(os.Environ(), "KEA_PIDFILE_DIR="+dir, "KEA_LOCKFILE_DIR="+dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		n.t.Fatalf("%v (apt-get install kea-dhcp4-server)", err)
	}
	stop = func() {
		cmd.Process.Kill()
		cmd.Wait()
	}
	n.t.Cleanup(func() {
		if n.t.Failed() {
			n.t.Logf("Kea printed %s", out.String())
		}
	})
	for range 100 {
		if out := n.run("ss -Hlun sport = :67"); len(out) > 0 {
			return stop, cmd.Process.Pid
		}
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	n.t.Fatalf("Kea does not listen: %s", out.String())
	return nil, 0
}

// BenchmarkAnswer is the path of one packet without the sockets.
func BenchmarkAnswer(b *testing.B) {
	packet := clientPacket(b, Discover, nil, Text(OptClass, "PXEClient:Arch:00007:UNDI:003000"))
	out := make([]byte, 0, maxMax)
	b.ReportAllocs()
	for b.Loop() {
		r, err := parse(packet)
		if err != nil {
			b.Fatal(err)
		}
		r.Local = testServer
		reply := fixed(b.Context(), r)
		if _, _, err := reply.encode(out, r); err != nil {
			b.Fatal(err)
		}
		reply.route(r)
	}
}

// BenchmarkEngine is DORA by relays on loopback, each a socket in lock step, with the whole server. Both sides
// share the cores.
func BenchmarkEngine(b *testing.B) {
	s := start(b, Config{Handler: HandlerFunc(fixed), Address: netip.MustParseAddrPort("127.0.0.1:0")})
	discover := clientPacket(b, Discover, field(atGiaddr, "127.0.0.1"), Option{OptRelay, []byte{RelaySourcePort, 0}})
	ask := clientPacket(b, Request, field(atGiaddr, "127.0.0.1"), Option{OptRelay, []byte{RelaySourcePort, 0}})
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(s.Addrs()[0]))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		in := make([]byte, maxReceive)
		for pb.Next() {
			for _, packet := range [][]byte{discover, ask} {
				if _, err := conn.Write(packet); err != nil {
					b.Error(err)
				}
				if _, err := conn.Read(in); err != nil {
					b.Error(err)
				}
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "DORA/s")
}
