// Package netboot serves machines while they boot: DHCP, TFTP, and HTTP with boot scripts, kernels and metadata. It
// answers from this head's local copy of the store, so that it works without a quorum.
//
// A DHCP packet becomes facts by an index of MACs (dhcp.go, lookup.go), boot.Decide decides on them, and the
// decision becomes a reply (dhcp_reply.go). Which address the client gets is decided and recorded by
// internal/addressing. Several heads share the clients, and take over from one another (dhcp_share.go,
// dhcp_responders.go).
//
// The other requests are HTTP or HTTPS, at one port (listen.go, http.go): the script by boot.Script (script.go), kernel
// and initramfs from the blobs (files.go), metadata (metadata.go) and the phone-home (phonehome.go); iPXE itself is
// loaded by TFTP or HTTP (ipxe.go). The steps that a boot reached are recorded later (progress.go), and delay no answer.
package netboot

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/addressing"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/state"
)

// Config of a Server. Tables, Leases, Keys, Blobs, StepReached, ForeignServer and PhoneHome must be set.
type Config struct {
	*state.Tables
	// Leases assigns addresses to DHCP clients.
	Leases *addressing.Leases
	// Head is this head's name: in lists of all heads' URLs, its own come first.
	Head string
	// Live reports whether another head answered a moment ago and has a quorum. nil: none does.
	Live func(head string) bool
	// Quorum reports whether this head can write. nil: always.
	Quorum func() bool
	// VIP is the address that the heads share, with its network's length. While there is a quorum, machines that
	// reach heads by that network load their boot files from there. Not valid: there is none.
	VIP netip.Prefix
	// Keys sign boot tokens; CA is the pin that agents know the heads by.
	Keys *auth.Keys
	CA   string
	// Blobs serves GET /blob/{digest}; kernels and initramfs are such requests to it.
	Blobs http.Handler
	// Port is the boot server's HTTP port, for the URLs in DHCP replies.
	Port uint16
	// TLS is the configuration of HTTPS at that port; nil: none is served. Handshakes bounds the rate of its handshakes.
	TLS        *tls.Config
	Handshakes *limit.Rate
	// IPXEDir is the directory of iPXE's programs; empty means DefaultIPXEDir.
	IPXEDir string
	// StepReached records that a machine reached a boot step, in one transaction. epoch is the machine's as this
	// head knew it then.
	StepReached func(ctx context.Context, machine, step string, epoch int64) error
	// ForeignServer records a DHCP server that is not a head.
	ForeignServer func(ctx context.Context, s fleet.ForeignServer) error
	// PhoneHome records that a machine's installed system is up, and the errors of its cloud-init. The token is verified.
	PhoneHome func(ctx context.Context, token auth.BootToken, cloudErrors []string) error

	Logger   *slog.Logger          // nothing is logged if nil
	Registry prometheus.Registerer // nothing is registered if nil
}

// maxRefreshes bounds how often per second a host that does not have its address may make this head read the store.
const maxRefreshes = 20

// Server answers machines. Its methods ServeDHCP, OpenTFTP and ServeHTTP are for the listeners of the caller; Run
// records the boot progress that they report.
type Server struct {
	Config
	log        *slog.Logger
	programs   programs
	options    *state.View[trivet.Network, map[*trivet.Network][]dhcp.Option]
	responders *state.View[trivet.Head, responders]
	deferred   *deferrals
	progress   *state.WriteQueue[progress]
	foreign    *foreignServers
	segments   *segments
	reports    *state.WriteQueue[fleet.ForeignServer]
	metrics    *metrics
	mux        *http.ServeMux
	warnings   rate.Sometimes
	refreshes  *rate.Limiter // of the local copy, for hosts that may be refused
}

// New returns a Server. It fails with [trivet.ErrNotFound] where iPXE's programs are missing.
func New(c Config) (*Server, error) {
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
	s := &Server{
		Config: c, log: c.Logger, programs: programs, deferred: newDeferrals(), metrics: newMetrics(c.Registry),
		segments:   newSegments(),
		options:    state.NewView(c.Store, c.Networks, allOptions),
		responders: state.NewView(c.Store, c.Heads, newResponders),
		warnings:   rate.Sometimes{Interval: time.Second},
		refreshes:  rate.NewLimiter(maxRefreshes, maxRefreshes),
	}
	s.progress = state.NewWriteQueue(s.writeProgress, s.dropProgress)
	s.foreign, s.reports = newForeignServers(), state.NewWriteQueue(s.writeReport, s.dropReport)
	s.mux = s.routes()
	return s, nil
}

// Run records boot progress and other DHCP servers until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.progress.Run(ctx) })
	g.Go(func() error { return s.reports.Run(ctx) })
	return g.Wait()
}

// writable reports whether this head has a quorum.
func (s *Server) writable() bool { return s.Quorum == nil || s.Quorum() }

// warn logs what packets can cause, at most once a second: clients may be hostile.
func (s *Server) warn(message string, args ...any) {
	s.warnings.Do(func() { s.log.Warn(message, args...) })
}
