package netboot_test

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/store"
)

const benchMachines = 5000

func benchMAC(i int) string { return fmt.Sprintf("52:54:01:00:%02x:%02x", i>>8, i&255) }

// newBenchFixture has machines with fixed addresses in a network of their own.
func newBenchFixture(b *testing.B) *fixture {
	r := newFixture(b)
	r.write(b, func(tx *store.Tx) error {
		n := lan()
		n.Name, n.Spec.CIDR = "big", netip.MustParsePrefix("10.8.0.0/16")
		n.Spec.NewClients = 1e6
		n.Spec.Gateway, n.Spec.Ranges = netip.Addr{}, []trivet.Range{span("10.8.128.0", "10.8.255.0", "")}
		return r.Networks.In(tx).Create(n)
	})
	for from := 0; from < benchMachines; from += 50 {
		r.write(b, func(tx *store.Tx) error {
			for i := from; i < from+50; i++ {
				a := netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)}).Next()
				m := machine(fmt.Sprintf("bench%d", i), trivet.NIC{MAC: benchMAC(i), Address: a})
				if err := r.Machines.In(tx).Create(m); err != nil {
					return err
				}
				record := &trivet.Address{Meta: trivet.Meta{Name: a.String()}, Spec: trivet.AddressSpec{
					Network: "big", MAC: benchMAC(i), Machine: m.Name, Fixed: true}}
				if err := r.Addresses.In(tx).Create(record); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return r
}

// The server's part of stored reservations: an operation is one packet, DISCOVER and REQUEST alternately.
func BenchmarkReservation(b *testing.B) {
	r := newBenchFixture(b)
	local := netip.MustParseAddr("10.8.0.1")
	var packets []*dhcp.Packet
	for i := range benchMachines {
		a := netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)}).Next()
		discover := packet(b, dhcp.Discover, benchMAC(i), uefiPXE...)
		ask := packet(b, dhcp.Request, benchMAC(i), with(uefiPXE, addrOption(50, a), addrOption(54, local))...)
		discover.Local, ask.Local = local, local
		packets = append(packets, discover, ask)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if got := r.ServeDHCP(b.Context(), packets[i%len(packets)]); got == nil || got.Type == dhcp.Nak {
			b.Fatalf("packet %d: %s", i, show(got))
		}
		i++
	}
}

// The server's part of dynamic ranges: an operation is one new client's whole exchange, with its record written
// durably. Many clients come at once, as the store's writes share its fsync.
func BenchmarkNewClient(b *testing.B) {
	r := newBenchFixture(b)
	local := netip.MustParseAddr("10.8.0.1")
	var clients atomic.Int64
	b.SetParallelism(64)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := clients.Add(1)
			mac := fmt.Sprintf("52:54:02:%02x:%02x:%02x", n>>16&255, n>>8&255, n&255)
			discover := packet(b, dhcp.Discover, mac)
			discover.Local = local
			offer := r.ServeDHCP(b.Context(), discover)
			if offer == nil {
				b.Errorf("client %d: no offer", n)
				return
			}
			ask := packet(b, dhcp.Request, mac, addrOption(50, offer.Address), addrOption(54, local))
			ask.Local = local
			if got := r.ServeDHCP(b.Context(), ask); got == nil || got.Type != dhcp.Ack {
				b.Errorf("client %d: %s", n, show(got))
				return
			}
		}
	})
}
