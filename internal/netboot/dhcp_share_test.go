package netboot_test

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
)

// site is two heads over one store that receive the same packets. What each believes of the other can be set.
type site struct {
	*fixture
	heads []*siteHead
}

type siteHead struct {
	*netboot.Server
	addr     netip.Addr
	live     atomic.Bool // the other one, as this one believes
	writable atomic.Bool
}

func newSite(t *testing.T, c netboot.Config) *site {
	t.Helper()
	s := &site{fixture: newFixture(t)}
	for i := range 2 {
		h := &siteHead{addr: ip(fmt.Sprintf("10.0.0.%d", i+1))}
		h.live.Store(true)
		h.writable.Store(true)
		c.Head, c.Live, c.Quorum = fmt.Sprintf("head%d", i), func(string) bool { return h.live.Load() }, h.writable.Load
		h.Server = s.server(t, c)
		s.heads = append(s.heads, h)
		s.write(t, func(tx *store.Tx) error {
			return s.Heads.In(tx).Create(&trivet.Head{Meta: trivet.Meta{Name: c.Head}, Status: trivet.HeadStatus{
				Boot: []string{"http://" + h.addr.String() + ":7481"}, DHCP: []netip.Addr{h.addr}}})
		})
	}
	return s
}

// start is when the tests' first packets come.
var start = time.Now()

// receive passes one packet, some time after the start, to the heads, and returns what each answers.
func (s *site) receive(t *testing.T, after time.Duration, kind dhcp.Type, mac string,
	how ...dhcpv4.Modifier) (answers [2]*dhcp.Reply) {
	t.Helper()
	for i, h := range s.heads {
		q := packet(t, kind, mac, how...)
		q.Local, q.Received = h.addr, start.Add(after)
		answers[i] = h.ServeDHCP(t.Context(), q)
	}
	return answers
}

// of is a port whose packets are a head's to answer.
func macOf(head int) string {
	for n := 0; ; n++ {
		mac := []byte{0x52, 0x54, 0, 0, 9, byte(n)}
		if int(dhcp.LoadHash(mac))%2 == head {
			return fmt.Sprintf("52:54:00:00:09:%02x", n)
		}
	}
}

// accept is the DHCPREQUEST for an offer.
func accepting(offer *dhcp.Reply, how ...dhcpv4.Modifier) []dhcpv4.Modifier {
	return with(how, addrOption(50, offer.Address), addrOption(54, offer.Server))
}

func secs(n uint16) dhcpv4.Modifier { return func(p *dhcpv4.DHCPv4) { p.NumSeconds = n } }

func TestOneHeadAnswersEachClient(t *testing.T) {
	s := newSite(t, netboot.Config{})
	count := [2]int{}
	given := map[netip.Addr]string{}
	for n := range 40 {
		mac := fmt.Sprintf("52:54:00:00:07:%02x", n)
		offers := s.receive(t, 0, dhcp.Discover, mac, uefiPXE...)
		i := 0
		if offers[0] == nil {
			i = 1
		}
		if offers[i] == nil || offers[1-i] != nil {
			t.Fatalf("%s: %s and %s", mac, show(offers[0]), show(offers[1]))
		}
		acks := s.receive(t, time.Millisecond, dhcp.Request, mac, accepting(offers[i])...)
		if acks[i] == nil || acks[i].Type != dhcp.Ack || acks[1-i] != nil || acks[i].Server != s.heads[i].addr {
			t.Fatalf("%s: %s and %s", mac, show(acks[0]), show(acks[1]))
		}
		if other := given[acks[i].Address]; other != "" {
			t.Errorf("%s and %s both have %s", mac, other, acks[i].Address)
		}
		given[acks[i].Address] = mac
		count[i]++
	}
	if count[0] < 10 || count[1] < 10 {
		t.Errorf("the heads answered %d and %d clients", count[0], count[1])
	}
}

func TestRetransmitIsAnswered(t *testing.T) {
	s := newSite(t, netboot.Config{})
	mac := macOf(0)
	if s.receive(t, 0, dhcp.Discover, mac)[1] != nil {
		t.Fatal("the other head answered at once")
	}
	if s.receive(t, time.Millisecond, dhcp.Discover, mac)[1] != nil {
		t.Error("a copy by a second relay was taken for a retransmit")
	}
	offers := s.receive(t, time.Second, dhcp.Discover, mac)
	if offers[1] == nil || offers[1].Address != offers[0].Address || offers[1].Server != s.heads[1].addr {
		t.Fatalf("%s and %s", show(offers[0]), show(offers[1]))
	}
	// The head that did not answer it is skipped for a while, on this network.
	other := "52:54:00:00:08:01"
	for n := 1; int(dhcp.LoadHash([]byte{0x52, 0x54, 0, 0, 8, byte(n)}))%2 != 0; n++ {
		other = fmt.Sprintf("52:54:00:00:08:%02x", n+1)
	}
	answers := s.receive(t, 2*time.Second, dhcp.Discover, other)
	if answers[1] == nil {
		t.Error("the next client waited as well")
	}
	if answers[0] == nil {
		t.Error("the owner, which was suspected wrongly, left the client to others")
	}
	if s.receive(t, time.Hour, dhcp.Discover, mac)[1] != nil {
		t.Error("an hour later it is still suspected, or the client's packet counts as a repetition")
	}
}

func TestSecsField(t *testing.T) {
	s := newSite(t, netboot.Config{})
	if s.receive(t, 0, dhcp.Discover, macOf(0), secs(2))[1] != nil {
		t.Error("2 s are too short")
	}
	if s.receive(t, 0, dhcp.Discover, macOf(0), secs(4))[1] == nil {
		t.Error("a client that has waited for 4 s was left to the other head")
	}
}

// A head dies between its offer and the request: the other acknowledges as that head.
func TestOfferOfADeadHeadIsAcknowledged(t *testing.T) {
	for name, believed := range map[string]bool{"known to be dead": false, "believed to be up": true} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, netboot.Config{})
			offer := s.receive(t, 0, dhcp.Discover, macOf(0), uefiPXE...)[0]
			s.heads[1].live.Store(believed)
			ack := s.receive(t, time.Second, dhcp.Request, macOf(0), accepting(offer, uefiPXE...)...)[1]
			if believed {
				if ack != nil {
					t.Fatalf("at once: %s", show(ack))
				}
				ack = s.receive(t, 2*time.Second, dhcp.Request, macOf(0), accepting(offer, uefiPXE...)...)[1]
			}
			if ack == nil || ack.Type != dhcp.Ack || ack.Server != s.heads[0].addr || ack.Address != offer.Address {
				t.Fatal(show(ack))
			}
			if ack.NextServer != s.heads[1].addr {
				t.Errorf("its boot file is at the dead head: %s", show(ack))
			}
			if a, err := s.Addresses.Get(ack.Address.String()); err != nil || a.Spec.MAC != macOf(0) {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
}

func TestClientsOfADeadHeadAreShared(t *testing.T) {
	s := newSite(t, netboot.Config{})
	s.heads[1].live.Store(false)
	if s.receive(t, 0, dhcp.Discover, macOf(0))[1] == nil {
		t.Error("the client of a head that is down waits")
	}
	if s.receive(t, 0, dhcp.Discover, "52:54:00:00:09:ff", dhcpv4.WithGatewayIP([]byte{10, 0, 0, 254}))[1] == nil {
		t.Error("a relayed client of a head that is down waits")
	}
}

// A renewal goes to the head that assigned the address; when that is dead, the client rebinds by broadcast.
func TestRebinding(t *testing.T) {
	s := newSite(t, netboot.Config{})
	offer := s.receive(t, 0, dhcp.Discover, macOf(0))[0]
	s.receive(t, 0, dhcp.Request, macOf(0), accepting(offer)...)
	has := dhcpv4.WithClientIP(offer.Address.AsSlice())

	renew := packet(t, dhcp.Request, macOf(0), has)
	renew.Local, renew.Unicast = s.heads[1].addr, true
	if ack := s.heads[1].ServeDHCP(t.Context(), renew); ack == nil || ack.Type != dhcp.Ack {
		t.Errorf("asked alone: %s", show(ack))
	}
	if s.receive(t, time.Minute, dhcp.Request, macOf(0), has)[1] != nil {
		t.Error("a rebinding is not shared")
	}
	ack := s.receive(t, time.Minute+time.Second, dhcp.Request, macOf(0), has)[1]
	if ack == nil || ack.Type != dhcp.Ack || ack.Address != offer.Address || ack.Server != s.heads[1].addr {
		t.Errorf("its repetition: %s", show(ack))
	}
}

// A client that has an address from elsewhere does not ask again for a boot file.
func TestProxiesAllAnswer(t *testing.T) {
	s := newSite(t, netboot.Config{})
	s.write(t, func(tx *store.Tx) error {
		n, err := s.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.DHCP = "proxy"
		return s.Networks.In(tx).Put(n)
	})
	offers := s.receive(t, 0, dhcp.Discover, knownMAC, uefiPXE...)
	for i, o := range offers {
		if o == nil || o.NextServer != s.heads[i].addr {
			t.Errorf("head%d: %s", i, show(o))
		}
	}
	if acks := s.receive(t, 0, dhcp.Request, knownMAC, with(uefiPXE, server("10.0.0.1"))...); acks != [2]*dhcp.Reply{} {
		t.Errorf("a request for an address: %s and %s", show(acks[0]), show(acks[1]))
	}
}

// A head without a quorum answers clients that have an address, and leaves the others to heads with a quorum.
func TestNoNewLeaseWithoutQuorum(t *testing.T) {
	s := newSite(t, netboot.Config{})
	for i := range s.heads {
		offer := s.receive(t, 0, dhcp.Discover, macOf(i))[i]
		s.receive(t, 0, dhcp.Request, macOf(i), accepting(offer)...)
	}
	s.heads[0].live.Store(false)
	s.heads[0].writable.Store(false)
	for i := range s.heads {
		if s.receive(t, time.Hour, dhcp.Discover, macOf(i))[0] == nil {
			t.Errorf("head%d's client, who has an address, gets no answer", i)
		}
	}
	if offer := s.receive(t, 0, dhcp.Discover, unknownMAC)[0]; offer != nil {
		t.Errorf("an unknown machine: %s", show(offer))
	}
	if s.receive(t, 0, dhcp.Discover, fixedMAC)[0] == nil {
		t.Error("a fixed address is not offered")
	}
}

func TestAddressesOfHeadsAreReserved(t *testing.T) {
	s := newSite(t, netboot.Config{VIP: netip.MustParsePrefix("10.0.0.101/32")})
	s.write(t, func(tx *store.Tx) error {
		n, err := s.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.Ranges = []trivet.Range{span("10.0.0.100", "10.0.0.102", "")}
		h, err2 := s.Heads.In(tx).Get("head1")
		h.Status.API = []string{"https://10.0.0.100:7480"}
		return errors.Join(err2, s.Networks.In(tx).Put(n), s.Heads.In(tx).Put(h))
	})
	offer := s.receive(t, 0, dhcp.Discover, macOf(0), uefiPXE...)[0]
	if offer == nil || offer.Address != ip("10.0.0.102") {
		t.Error(show(offer))
	}
}

// Boot files come from the virtual address while there is a quorum, which it needs.
func TestBootFilesFromTheSharedAddress(t *testing.T) {
	s := newSite(t, netboot.Config{VIP: netip.MustParsePrefix("10.0.0.9/24")})
	mac := macOf(0)
	if o := s.receive(t, 0, dhcp.Discover, mac, biosPXE...)[0]; o.NextServer != ip("10.0.0.9") ||
		o.Server != s.heads[0].addr {
		t.Error(show(o))
	}
	if o := s.receive(t, time.Hour, dhcp.Discover, mac, ipxe...)[0]; o.BootFile != "http://10.0.0.9:8080"+
		scriptOf(mac) {
		t.Error(show(o))
	}
	relayed := dhcpv4.WithGatewayIP([]byte{10, 1, 0, 254})
	s.write(t, func(tx *store.Tx) error {
		n := lan()
		n.Name, n.Spec.CIDR, n.Spec.Gateway = "far", netip.MustParsePrefix("10.1.0.0/24"), ip("10.1.0.254")
		n.Spec.Ranges = []trivet.Range{span("10.1.0.100", "10.1.0.199", "")}
		return s.Networks.In(tx).Create(n)
	})
	if o := s.receive(t, 90*time.Minute, dhcp.Discover, mac,
		with(biosPXE, relayed)...)[0]; o.NextServer != ip("10.0.0.9") {
		t.Errorf("by a relay: %s", show(o))
	}
	s.heads[0].writable.Store(false)
	fixed := s.receive(t, 2*time.Hour, dhcp.Discover, fixedMAC, biosPXE...)
	if fixed[0] != nil && fixed[0].NextServer != s.heads[0].addr {
		t.Error(show(fixed[0]))
	}
}
