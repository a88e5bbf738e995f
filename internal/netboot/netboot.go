// Package netboot is what machines talk to while they boot: DHCP, TFTP, the plain HTTP door with boot scripts, kernels and
// metadata. It answers from this head's local copy of the store, so it goes on without a quorum; the rules are in
// internal/boot and internal/ipam.
//
// A packet becomes facts (lookup.go), the rules decide, and the decision becomes an answer (dhcp.go, reply.go; script.go).
// Only an address that nobody has yet is written before it is acknowledged (lease.go). Several heads share out who answers
// whom, and take over from one another (heads.go, share.go). What packets show of a boot is
// written later (sightings.go), and never holds one up.
package netboot

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/state"
)

// Config of a Door. Tables, Keys, Blobs, Seen and PhoneHome must be set.
type Config struct {
	*state.Tables
	// Head is this head's name: of all heads' URLs, its own come first.
	Head string
	// Live says whether another head was found to answer a moment ago, and to have a quorum. nil: none does.
	Live func(head string) bool
	// Quorum says whether this head can write; where it cannot, no address is given anew. nil: always.
	Quorum func() bool
	// VIP is an address that some head has at any time, while there is a quorum, and its network's length. Machines that reach
	// heads by that network load their boot files from there. Not valid: there is none.
	VIP netip.Prefix
	// Keys sign boot tokens; CA is the pin that agents know the heads by.
	Keys *auth.Keys
	CA   string
	// Blobs serves GET /blob/{digest}; kernels and initramfs are such requests to it.
	Blobs http.Handler
	// Port is the HTTP door's, for the URLs that DHCP gives out.
	Port uint16
	// IPXEDir has iPXE's programs; empty means DefaultIPXEDir.
	IPXEDir string
	// Seen writes down that a machine reached a boot step.
	Seen Seen
	// PhoneHome writes down that a machine's installed system is up. The token is proven.
	PhoneHome func(ctx context.Context, token auth.BootToken) error

	Logger   *slog.Logger          // nothing is logged if nil
	Registry prometheus.Registerer // nothing is counted if nil
}

// Door answers machines. Its methods ServeDHCP, OpenTFTP and ServeHTTP are for the servers that the caller runs; Run does
// what they leave for later.
type Door struct {
	Config
	log       *slog.Logger
	now       func() time.Time
	programs  programs
	networks  networks
	heads     heads
	offers    *offers
	asks      *asks
	sightings *queue[sighting]
	keepings  *queue[keeping]
	metrics   *metrics
	mux       *http.ServeMux
	sometimes rate.Sometimes
}

// New makes a door. It fails with [trivet.ErrNotFound] where iPXE's programs are missing.
func New(c Config) (*Door, error) {
	if c.IPXEDir == "" {
		c.IPXEDir = DefaultIPXEDir
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	programs, err := findPrograms(c.IPXEDir)
	if err != nil {
		return nil, fmt.Errorf("netboot: %w", err)
	}
	d := &Door{
		Config: c, log: c.Logger, now: time.Now, programs: programs, offers: newOffers(), asks: newAsks(),
		metrics: newMetrics(c.Registry), sometimes: rate.Sometimes{Interval: time.Second},
	}
	d.networks.tables, d.heads.tables = c.Tables, c.Tables
	d.sightings = newQueue(d, "sighting", d.writeSighting)
	d.keepings = newQueue(d, "address", d.writeKeeping)
	d.mux = d.routes()
	return d, nil
}

// Run writes what packets left to write until ctx ends.
func (d *Door) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.sightings.run(ctx) })
	g.Go(func() error { return d.keepings.run(ctx) })
	return g.Wait()
}

// writable says whether this head has a quorum.
func (d *Door) writable() bool { return d.Quorum == nil || d.Quorum() }

// warn logs what packets can bring about, at most once a second: who sends packets may be hostile.
func (d *Door) warn(message string, args ...any) {
	d.sometimes.Do(func() { d.log.Warn(message, args...) })
}
