package server

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/program"
)

// Config is the configuration of one head.
type Config struct {
	// Dir is the data directory: store, keys, blobs, logs.
	Dir string
	// Name is the name of a cluster's first head, set at its first start; empty: DefaultName.
	Name    string
	Version string
	// API is the TLS listener for people, programs and agents; Boot the plain HTTP listener for machines that boot.
	API, Boot string
	// TFTP is the listener for boot programs; empty: none.
	TFTP string
	// DHCPInterfaces are the interfaces for broadcasts and proxyDHCP, DHCPAddress is a UDP listener for relays
	// instead. Both empty: no DHCP.
	DHCPInterfaces []string
	DHCPAddress    string
	// Advertise is the addresses or names where machines and clients reach this head; empty: the addresses of the DHCP
	// interfaces, or of all.
	Advertise []string
	// Join is API URLs of heads whose cluster this head joins at its first start, by the token in JoinToken; nil: a
	// new cluster, which must not have a JoinToken. JoinToken is a secret.
	Join      []string
	JoinToken string
	// Rejoin moves data of a removed head aside.
	Rejoin bool
	// Recover makes a head without data join a living cluster, and never create one.
	Recover bool
	// NewCluster creates a new cluster although another one serves the same network.
	NewCluster bool
	// Drain is how long the head serves on after a stop, not ready, for load balancers.
	Drain time.Duration
	// VIP is an address that the heads share, "10.0.0.9/24": one of them holds it at a time, on its VIPInterface;
	// empty: the only one of DHCPInterfaces.
	VIP, VIPInterface string
	// Heartbeat is the interval of the store's heartbeats; 0: cluster's default. All heads have the same.
	Heartbeat time.Duration
	// Audit is the file to which the audit log is appended as lines of JSON, or AuditSyslog; empty: none.
	Audit string
	// StoreQuota is how many bytes of the store may be in use; 0: cluster's default. All heads have the same.
	StoreQuota trivet.ByteSize
	// BlobQuota is how many bytes of the disk blobs may take, images in use above all; 0: all but a reserve.
	BlobQuota trivet.ByteSize
	// PerAddress bounds the connections of an address that is not recognised, 0: DefaultPerAddress. Shared are the
	// addresses of load balancers and gateways, which many callers have: they have no such bound.
	PerAddress int
	Shared     []netip.Prefix
	// PowerCommands is the directory of the programs of machines whose spec.bmc.protocol is exec.
	PowerCommands string
	// BackupDir is the directory that the directories of scheduled backups are below; empty: none.
	BackupDir string
	// Programs is what upgrades bring, and NoUpgrades that this head's program is not replaced by command; nil Programs
	// imply it.
	Programs   *program.Dir
	NoUpgrades bool
	// IPXEDir has iPXE's programs; empty: Debian's.
	IPXEDir string
	Log     *slog.Logger
}

// Defaults of a head.
const (
	DefaultDir           = "/var/lib/trivet"
	DefaultPowerCommands = "/etc/trivet/power"
	DefaultAPI           = ":7480"
	DefaultBoot          = ":7481"
	DefaultTFTP          = ":69"
	DefaultName          = membership.DefaultName
)

// minQuota is the minimum of Config.StoreQuota.
const minQuota = 16 << 20

// drainTimeout bounds the requests that run when the head stops.
const drainTimeout = 5 * time.Second

func (c *Config) validate() error {
	switch {
	case c.Dir == "":
		return &trivet.FieldError{Field: "data-dir", Problem: "is missing"}
	case c.Join != nil && (len(c.Join) == 0 || slices.Contains(c.Join, "")):
		return &trivet.FieldError{Field: "--join",
			Problem: "is empty; pass the API of a head, https://HOST:7480, or omit it for a new cluster"}
	case c.Rejoin && len(c.Join) == 0:
		return &trivet.FieldError{Field: "--rejoin", Problem: "needs --join URL and --token TOKEN"}
	case c.NewCluster && len(c.Join) > 0:
		return &trivet.FieldError{Field: "--new-cluster",
			Problem: "creates a cluster, --join joins one; pass one of them"}
	case c.NewCluster && c.Recover:
		return &trivet.FieldError{Field: "--new-cluster",
			Problem: "creates a cluster, --recover never does; pass one of them"}
	case c.StoreQuota != 0 && c.StoreQuota < minQuota:
		return &trivet.FieldError{Field: "--store-quota", Problem: "must be at least 16MiB"}
	case c.BackupDir != "" && overlap(c.BackupDir, c.Dir):
		return &trivet.FieldError{Field: "--backup-dir", Problem: "has, or is in, the data directory; pass another one"}
	case c.PerAddress < 0:
		return &trivet.FieldError{Field: "--connections-per-address", Problem: "must be above 0"}
	case c.Heartbeat != 0 && (c.Heartbeat < cluster.MinHeartbeat || c.Heartbeat > cluster.MaxHeartbeat):
		return &trivet.FieldError{Field: "--heartbeat",
			Problem: fmt.Sprintf("must be between %v and %v", cluster.MinHeartbeat, cluster.MaxHeartbeat)}
	}
	return c.validateVIP()
}

// overlap reports whether one of two directories is, or is in, the other one.
func overlap(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	in := func(inner, outer string) bool {
		return strings.HasPrefix(inner+"/", strings.TrimSuffix(outer, "/")+"/")
	}
	return errA != nil || errB != nil || in(a, b) || in(b, a)
}

// addresses returns where this head is reached.
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

// dhcpNets returns the addresses of the interfaces for DHCP.
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

// dhcpAddresses returns the addresses that this head serves DHCP from. By them heads recognize each other's offers.
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

// reachable returns the addresses that another machine could use, or loopback where there is none. The shared address
// is not this head's: an earlier process may have left it.
func (c *Config) reachable(nets []net.Addr) []string {
	var out []string
	for _, n := range nets {
		p, err := netip.ParsePrefix(n.String())
		if err == nil && p.Addr().Is4() && p.Addr() != c.vip().Addr() && !p.Addr().IsLoopback() &&
			!p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Addr().String())
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		out = []string{"127.0.0.1"}
	}
	return slices.Compact(out)
}

// path returns the path of a file or directory in the data directory.
func (c *Config) path(name string) string { return filepath.Join(c.Dir, name) }

// certNames returns the names in the certificate of the API's port.
func (c *Config) certNames(hosts []string) []string {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, hosts...)
	if c.VIP != "" {
		names = append(names, c.vip().Addr().String())
	}
	return names
}

// urls returns the URLs of a listener; none where there is no listener.
func urls(scheme string, hosts []string, l net.Listener) []string {
	if l == nil {
		return nil
	}
	port := strconv.Itoa(int(portOf(l.Addr())))
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
