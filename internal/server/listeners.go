package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/limit"
	"github.com/trivet-project/trivet/internal/tftp"
)

// listeners are the head's listeners. All are bound before anything is served.
type listeners struct {
	api, boot  net.Listener
	tftp       *net.UDPConn
	tftpServer *tftp.Server
	dhcp       *dhcp.Server
}

// listen binds all ports but DHCP's. A witness has the API's only.
func (l *listeners) listen(ctx context.Context, cfg *Config, witness bool) (err error) {
	var lc net.ListenConfig
	if l.api, err = lc.Listen(ctx, "tcp", cfg.API); err != nil {
		return listenError("API", "--api", cfg.API, err)
	}
	if witness {
		return nil
	}
	if l.boot, err = lc.Listen(ctx, "tcp", cfg.Boot); err != nil {
		return listenError("boot", "--boot", cfg.Boot, err)
	}
	if cfg.TFTP == "" {
		return nil
	}
	addr, err := net.ResolveUDPAddr("udp", cfg.TFTP)
	if err != nil {
		return listenError("TFTP", "--tftp", cfg.TFTP, err)
	}
	if l.tftp, err = net.ListenUDP("udp", addr); err != nil {
		return listenError("TFTP", "--tftp", cfg.TFTP, err)
	}
	return nil
}

// tftpOpener opens a file for a machine, as tftp.Server wants it.
type tftpOpener = func(ctx context.Context, name string, peer netip.AddrPort) (tftp.File, int64, error)

// listenBoot creates the servers for TFTP and DHCP.
func (l *listeners) listenBoot(cfg *Config, limits *limit.Set, open tftpOpener, handler dhcp.Handler,
	reg prometheus.Registerer) (err error) {
	if l.tftp != nil {
		l.tftpServer = &tftp.Server{Open: open, Logger: cfg.Log.With("part", "tftp"), Metrics: tftp.NewMetrics(reg),
			Limits: limits}
	}
	if len(cfg.DHCPInterfaces) == 0 && cfg.DHCPAddress == "" {
		return nil
	}
	var address netip.AddrPort
	if cfg.DHCPAddress != "" {
		if address, err = netip.ParseAddrPort(cfg.DHCPAddress); err != nil {
			return &trivet.FieldError{Field: "--dhcp-listen",
				Problem: fmt.Sprintf("is %q; it must be an address and a port, such as 10.0.0.5:67", cfg.DHCPAddress)}
		}
	}
	l.dhcp, err = dhcp.Listen(dhcp.Config{
		Handler: handler, Interfaces: cfg.DHCPInterfaces, Address: address, Proxy: len(cfg.DHCPInterfaces) > 0,
		Logger: cfg.Log.With("part", "dhcp"), Metrics: dhcp.NewMetrics(reg),
	})
	switch {
	case err != nil && len(cfg.DHCPInterfaces) > 0:
		return listenError("DHCP", "--dhcp", strings.Join(cfg.DHCPInterfaces, ","), err)
	case err != nil:
		return listenError("DHCP", "--dhcp-listen", cfg.DHCPAddress, err)
	}
	return nil
}

// serveUDP serves TFTP and DHCP until ctx ends.
func (l *listeners) serveUDP(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if l.tftpServer != nil {
		g.Go(func() error { return l.tftpServer.Serve(ctx, l.tftp) })
	}
	if l.dhcp != nil {
		g.Go(func() error { return l.dhcp.Serve(ctx) })
	}
	return g.Wait()
}

func (l *listeners) dhcpAddr() netip.AddrPort {
	if l.dhcp == nil || len(l.dhcp.Addrs()) == 0 {
		return netip.AddrPort{}
	}
	return l.dhcp.Addrs()[0]
}

// close closes what Run has not closed already.
func (l *listeners) close() {
	if l.api != nil {
		_ = l.api.Close()
	}
	if l.boot != nil {
		_ = l.boot.Close()
	}
	if l.tftp != nil {
		_ = l.tftp.Close()
	}
	if l.dhcp != nil {
		_ = l.dhcp.Close()
	}
}

// listenError adds a hint to the error of a port that cannot be bound.
func listenError(what, flag, addr string, err error) error {
	e := &trivet.Error{Op: "listen for " + what, Name: addr, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Hint = "another program uses the port: stop it, or choose another with " + flag
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e.Hint = "this needs root or CAP_NET_BIND_SERVICE and CAP_NET_RAW; or choose another address with " + flag
	default:
		e.Hint = "choose another with " + flag
	}
	return e
}

// debugLog returns a log for net/http's messages about clients.
func debugLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
