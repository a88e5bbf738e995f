package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// Config is how one head is run.
type Config struct {
	// Dir is the head's data: store, keys, blobs, logs.
	Dir string
	// Name is the head's, given at the first start and kept from then on; empty means that, or DefaultName.
	Name    string
	Version string
	// API is the TLS listener for people, programs and agents; Boot the plain HTTP listener for machines that boot.
	API, Boot string
	// TFTP is the listener for boot programs; empty means none.
	TFTP string
	// DHCPInterfaces are served by broadcast and proxyDHCP; DHCPAddress is a UDP listener for relays instead. Both empty
	// means no DHCP.
	DHCPInterfaces []string
	DHCPAddress    string
	// Advertise are the addresses or names under which machines and clients reach this head; empty means the addresses of
	// the DHCP interfaces, or of all.
	Advertise []string
	// Join are API URLs of heads whose cluster this one joins at its first start, by the token in JoinToken; nil means a
	// cluster of its own, which no JoinToken may be given for. JoinToken is a secret.
	Join      []string
	JoinToken string
	// Rejoin sets data aside that are in the way of Join: those of a head that was removed.
	Rejoin bool
	// NewCluster makes a new cluster although another one serves the same network.
	NewCluster bool
	// Drain is how long the head serves after it is told to stop, while it says that it is not ready: for load balancers.
	Drain time.Duration
	// VIP is an address that the heads share, "10.0.0.9/24": one of them has it at any time, on its VIPInterface; that is empty
	// where it is the only one of DHCPInterfaces.
	VIP, VIPInterface string
	// Heartbeat is how often the store's leader says that it is there; 0 means cluster's default. All heads have the same.
	Heartbeat time.Duration
	// IPXEDir has iPXE's programs; empty means Debian's.
	IPXEDir string
	Log     *slog.Logger
}

// Defaults of a head.
const (
	DefaultDir  = "/var/lib/trivet"
	DefaultAPI  = ":7480"
	DefaultBoot = ":7481"
	DefaultTFTP = ":69"
	DefaultName = "head0"
)

// drainTime is how long requests may take to end when the head stops.
const drainTime = 5 * time.Second

func (c *Config) validate() error {
	switch {
	case c.Dir == "":
		return &trivet.FieldError{Field: "data-dir", Problem: "is missing"}
	case c.Join != nil && (len(c.Join) == 0 || slices.Contains(c.Join, "")):
		return &trivet.FieldError{Field: "--join", Problem: "is empty; give the API of a head, https://HOST:7480, or leave it out for a cluster of its own"}
	case c.Rejoin && len(c.Join) == 0:
		return &trivet.FieldError{Field: "--rejoin", Problem: "needs --join URL and --token TOKEN"}
	case c.NewCluster && len(c.Join) > 0:
		return &trivet.FieldError{Field: "--new-cluster", Problem: "makes a cluster of its own, --join joins one; give one of them"}
	case c.Heartbeat != 0 && (c.Heartbeat < cluster.MinHeartbeat || c.Heartbeat > cluster.MaxHeartbeat):
		return &trivet.FieldError{Field: "--heartbeat", Problem: fmt.Sprintf("must be between %v and %v", cluster.MinHeartbeat, cluster.MaxHeartbeat)}
	}
	return c.validateVIP()
}

// addresses are where this head is reached.
func (c *Config) addresses() ([]string, error) {
	if len(c.Advertise) > 0 {
		return c.Advertise, nil
	}
	nets, err := c.dhcpNets()
	if len(c.DHCPInterfaces) == 0 {
		nets, err = net.InterfaceAddrs()
	}
	return c.reachable(nets), err
}

// dhcpNets are the addresses of the interfaces where DHCP is served.
func (c *Config) dhcpNets() ([]net.Addr, error) {
	var nets []net.Addr
	for _, name := range c.DHCPInterfaces {
		ifc, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		addrs, err := ifc.Addrs()
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", name, err)
		}
		nets = append(nets, addrs...)
	}
	return nets, nil
}

// dhcpAddresses are where this head answers DHCP. By them the heads know who hears whom, and whose offer a machine takes.
func (c *Config) dhcpAddresses(hosts []string) (all []netip.Addr) {
	if nets, err := c.dhcpNets(); len(c.DHCPInterfaces) > 0 && err == nil {
		hosts = c.reachable(nets)
	} else if listen, err := netip.ParseAddrPort(c.DHCPAddress); err != nil {
		return nil
	} else if !listen.Addr().IsUnspecified() {
		return []netip.Addr{listen.Addr()}
	}
	for _, h := range hosts {
		if a, err := netip.ParseAddr(h); err == nil && a.Is4() && !a.IsLoopback() {
			all = append(all, a)
		}
	}
	return all
}

// reachable gives the addresses that another machine could use, or loopback where there is no other. The shared one is not
// this head's: a former process may have left it.
func (c *Config) reachable(nets []net.Addr) []string {
	var out []string
	for _, n := range nets {
		p, err := netip.ParsePrefix(n.String())
		if err == nil && p.Addr().Is4() && p.Addr() != c.shared().Addr() && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Addr().String())
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		out = []string{"127.0.0.1"}
	}
	return slices.Compact(out)
}

func urls(scheme string, hosts []string, l net.Addr) []string {
	port := strconv.Itoa(int(portOf(l)))
	out := make([]string, len(hosts))
	for i, h := range hosts {
		out[i] = scheme + "://" + net.JoinHostPort(h, port)
	}
	return out
}

func portOf(a net.Addr) uint16 {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return 0
	}
	return p.Port()
}
