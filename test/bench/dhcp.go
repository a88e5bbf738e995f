package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Kea's perfdhcp plays a relay for many machines, which each get an address by four packets (DORA). It leaves
// unanswered what is on its way at the end of its time: 2 ms of the rate.
const (
	dhcpClients = 5000 // with a reservation
	dhcpPeriod  = 4 * time.Second
	dhcpRounds  = 3
	maxDropped  = 0.001
)

// reservations climbs the rates with machines that have reservations: in Trivet's store, in Kea's
// configuration.
func (b *bench) reservations() error {
	h, _, err := b.startHead(filepath.Join(b.dir, "reserved"), "--dhcp", "eth0")
	if err != nil {
		return err
	}
	defer h.close()
	if err := b.reserve(h); err != nil {
		return err
	}
	var hosts []map[string]any
	for i := range dhcpClients {
		hosts = append(hosts, map[string]any{"hw-address": benchMAC(i), "ip-address": nth(other, i).String()})
	}
	kea, err := b.startKea(map[string]any{
		"reservations": hosts, "reservations-in-subnet": true, "reservations-out-of-pool": true,
	})
	if err != nil {
		return err
	}
	defer kea.stop()
	us := &climber{b: b, side: ours, server: h.program, clients: dhcpClients}
	them := &climber{b: b, side: other, server: kea, clients: dhcpClients}
	if err := climb(us, them, 5000, 14000, 1000); err != nil {
		return err
	}
	b.report.climbed(us, them, atLeastPeer(1))
	return nil
}

// ranges climbs the rates with unknown machines: almost every DORA is a new lease. Trivet writes each to the
// replicated store and syncs it before it acknowledges; Kea appends it to a file that it does not sync.
func (b *bench) ranges() error {
	h, _, err := b.startHead(filepath.Join(b.dir, "ranges"), "--dhcp", "eth0")
	if err != nil {
		return err
	}
	defer h.close()
	first, last := nth(ours, 0), netip.MustParseAddr("10.31.0.0")
	if err := b.network(h, trivet.Range{From: first, To: last}); err != nil {
		return err
	}
	kea, err := b.startKea(map[string]any{
		"pools": []map[string]any{{"pool": nth(other, 0).String() + " - 10.47.0.0"}},
	})
	if err != nil {
		return err
	}
	defer kea.stop()
	us := &climber{b: b, side: ours, server: h.program}
	them := &climber{b: b, side: other, server: kea}
	if err := climb(us, them, 2000, 10000, 1000); err != nil {
		return err
	}
	b.report.climbed(us, them, bound{})
	return b.stored(h, us)
}

// stored reports how many addresses the store holds in the end, beside how many were acknowledged.
func (b *bench) stored(h *head, us *climber) error {
	list, _, err := client.Of[trivet.Address](h.client).List(b.ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	b.report.note("Of %.0f acknowledgements, each to another client, %d addresses are in the store.", us.answered,
		len(list))
	return nil
}

// benchMAC is the address of perfdhcp's i-th client, nth the i-th address that a side assigns.
func benchMAC(i int) string {
	return fmt.Sprintf("00:0c:01:%02x:%02x:%02x", (0x020304+i)>>16, (0x020304+i)>>8&255, (0x020304+i)&255)
}

func nth(s side, i int) netip.Addr {
	a := netip.MustParseAddr(s.address).As4()
	return netip.AddrFrom4([4]byte{a[0], a[1] + 1, byte(i >> 8), byte(i)})
}

func (b *bench) network(h *head, ranges ...trivet.Range) error {
	_, err := client.Of[trivet.Network](h.client).Create(b.ctx, &trivet.Network{
		Meta: trivet.Meta{Name: "bench"},
		Spec: trivet.NetworkSpec{
			CIDR: netip.MustParsePrefix(ours.subnet), Gateway: netip.MustParseAddr(ours.address),
			DNS: []netip.Addr{netip.MustParseAddr(ours.address)}, Ranges: ranges, Lease: trivet.Duration(time.Hour),
			NewClients: 1e6,
		},
	})
	return err
}

func (b *bench) reserve(h *head) error {
	if err := b.network(h); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(32)
	for i := range dhcpClients {
		g.Go(func() error {
			_, err := client.Of[trivet.Machine](h.client).Create(ctx, &trivet.Machine{
				Meta: trivet.Meta{Name: fmt.Sprintf("machine%d", i)},
				Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: benchMAC(i), Address: nth(ours, i)}}},
			})
			return err
		})
	}
	return g.Wait()
}

func (b *bench) startKea(subnet map[string]any) (*program, error) {
	type object = map[string]any
	subnet["id"], subnet["subnet"] = 1, other.subnet
	subnet["option-data"] = []object{
		{"name": "routers", "data": other.address}, {"name": "domain-name-servers", "data": other.address},
	}
	config, err := json.Marshal(object{"Dhcp4": object{
		"interfaces-config": object{"interfaces": []string{"eth0"}, "dhcp-socket-type": "udp"},
		"lease-database": object{
			"type": "memfile", "persist": true, "name": filepath.Join(b.dir, "leases.csv"),
		},
		"host-reservation-identifiers": []string{"hw-address"},
		"valid-lifetime":               3600,
		"loggers": []object{{
			"name": "kea-dhcp4", "severity": "ERROR", "output_options": []object{{"output": "stderr"}},
		}},
		"subnet4": []object{subnet},
	}})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(b.dir, "kea.json")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, err
	}
	return b.startServer("udp", 67, "kea-dhcp4", "-c", path)
}

// climber is one server on its way up the rates.
type climber struct {
	b        *bench
	side     side
	server   *program
	clients  int // that come again and again; 0: every one is new
	runs     int
	best     float64 // the highest rate with fewer than maxDropped
	most     float64 // the most that was answered in a second
	answered float64
	cpu      time.Duration // for all that was answered
	done     bool
}

// climb offers both servers each rate alternately, until a server cannot follow.
func climb(us, them *climber, from, to, step int) error {
	if us.answered == 0 {
		for range 3 { // warms up; every client is known by its address then
			for _, c := range []*climber{us, them} {
				if _, _, err := c.offer(1000); err != nil {
					return err
				}
			}
		}
	}
	for rate := from; rate <= to && !(us.done && them.done); rate += step {
		begun, acked := map[*climber][]float64{}, map[*climber][]float64{}
		for range dhcpRounds {
			for _, c := range []*climber{us, them} {
				if c.done {
					continue
				}
				sent, got, err := c.offer(rate)
				if err != nil {
					return err
				}
				begun[c], acked[c] = append(begun[c], sent), append(acked[c], got)
			}
		}
		for c := range begun {
			c.judge(rate, begun[c], acked[c])
		}
	}
	return nil
}

func (c *climber) judge(rate int, begun, acked []float64) {
	var dropped []float64
	for i := range begun {
		dropped = append(dropped, 1-acked[i]/begun[i])
	}
	perSecond := median(acked) / dhcpPeriod.Seconds()
	c.most = max(c.most, perSecond)
	if median(dropped) < maxDropped && median(begun) > 0.98*float64(rate)*dhcpPeriod.Seconds() {
		c.best = max(c.best, perSecond)
	}
	c.done = median(dropped) > 0.1
	fmt.Printf("  %-6s offered %5d/s: answered %5.0f/s, unanswered %.3f %%\n", c.side.namespace[6:], rate, perSecond,
		100*median(dropped))
}

var (
	sentLine = regexp.MustCompile(`sent packets: (\d+)`)
	gotLine  = regexp.MustCompile(`received packets: (\d+)`)
)

// offer begins a rate of DORAs for dhcpPeriod, and returns how many were begun and how many ended with an ACK.
func (c *climber) offer(rate int) (begun, acked float64, err error) {
	before, err := c.server.CPU()
	if err != nil {
		return 0, 0, err
	}
	c.runs++
	who := []string{"-R", strconv.Itoa(c.clients)}
	if c.clients == 0 { // it counts the address up from where it begins
		who = []string{"-R", "10000000", "-b", fmt.Sprintf("mac=00:0c:%02x:00:00:00", c.runs)}
	}
	args := []string{"-4", "-l", c.side.client, "-r", strconv.Itoa(rate),
		"-p", strconv.Itoa(int(dhcpPeriod.Seconds())), "-W", "500000", "-g", "multi"}
	args = append(append(args, who...), c.side.address)
	out, err := c.b.output([]int{3}, "perfdhcp", args...)
	if err != nil {
		return 0, 0, err
	}
	after, err := c.server.CPU()
	// DISCOVER-OFFER comes first, REQUEST-ACK second.
	sent, got := sentLine.FindAllStringSubmatch(out, 2), gotLine.FindAllStringSubmatch(out, 2)
	if err != nil || len(sent) != 2 || len(got) != 2 {
		return 0, 0, fmt.Errorf("the output of perfdhcp is %s (%w)", out, err)
	}
	begun, _ = strconv.ParseFloat(sent[0][1], 64)
	acked, _ = strconv.ParseFloat(got[1][1], 64)
	c.answered, c.cpu = c.answered+acked, c.cpu+after-before
	return begun, acked, nil
}

// climbed adds the rates that both reached.
func (r *report) climbed(us, them *climber, must bound) {
	who := "-R " + strconv.Itoa(us.clients)
	if us.clients == 0 {
		who = "-R 10000000 -b mac=00:0c:RUN:00:00:00"
	}
	r.command("perfdhcp -4 -l CLIENT -r RATE -p 4 -W 500000 -g multi " + who + " SERVER")
	r.add(row{what: "highest rate with < 0.1 % unanswered", unit: "DORA/s", ours: us.best, peer: them.best, by: "Kea",
		bound: must})
	r.add(row{what: "most answered", unit: "DORA/s", ours: us.most, peer: them.most, by: "Kea", bound: must})
	each := func(c *climber) float64 { return float64(c.cpu.Microseconds()) / c.answered }
	r.add(row{what: "processor time for one", unit: "µs", ours: each(us), peer: each(them), by: "Kea"})
}
