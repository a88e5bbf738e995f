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
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/tftp"
)

// doors are the head's listeners. They are all bound before anything is served.
type doors struct {
	api, boot net.Listener
	tftp      *net.UDPConn
	tftpd     *tftp.Server
	dhcp      *dhcp.Server
}

func (s *Server) bind(ctx context.Context) (err error) {
	if s.hosts, err = s.cfg.addresses(); err != nil {
		return err
	}
	var lc net.ListenConfig
	if s.doors.api, err = lc.Listen(ctx, "tcp", s.cfg.API); err != nil {
		return bindError("API", "--api", s.cfg.API, err)
	}
	if s.asWitness() { // it serves nobody else
		return nil
	}
	if s.doors.boot, err = lc.Listen(ctx, "tcp", s.cfg.Boot); err != nil {
		return bindError("boot", "--boot", s.cfg.Boot, err)
	}
	if s.cfg.TFTP == "" {
		return nil
	}
	addr, err := net.ResolveUDPAddr("udp", s.cfg.TFTP)
	if err != nil {
		return bindError("TFTP", "--tftp", s.cfg.TFTP, err)
	}
	if s.doors.tftp, err = net.ListenUDP("udp", addr); err != nil {
		return bindError("TFTP", "--tftp", s.cfg.TFTP, err)
	}
	return nil
}

func (d *doors) listenDHCP(cfg *Config, door *netboot.Server, handler dhcp.Handler, reg prometheus.Registerer) (err error) {
	if d.tftp != nil {
		d.tftpd = &tftp.Server{Open: door.OpenTFTP, Logger: cfg.Log.With("part", "tftp"), Metrics: tftp.NewMetrics(reg)}
	}
	if len(cfg.DHCPInterfaces) == 0 && cfg.DHCPAddress == "" {
		return nil
	}
	var address netip.AddrPort
	if cfg.DHCPAddress != "" {
		if address, err = netip.ParseAddrPort(cfg.DHCPAddress); err != nil {
			return &trivet.FieldError{Field: "--dhcp-listen", Problem: fmt.Sprintf("is %q; it must be an address and a port, such as 10.0.0.5:67", cfg.DHCPAddress)}
		}
	}
	d.dhcp, err = dhcp.Listen(dhcp.Config{
		Handler: handler, Interfaces: cfg.DHCPInterfaces, Address: address, Proxy: len(cfg.DHCPInterfaces) > 0,
		Logger: cfg.Log.With("part", "dhcp"), Metrics: dhcp.NewMetrics(reg),
	})
	switch {
	case err != nil && len(cfg.DHCPInterfaces) > 0:
		return bindError("DHCP", "--dhcp", strings.Join(cfg.DHCPInterfaces, ","), err)
	case err != nil:
		return bindError("DHCP", "--dhcp-listen", cfg.DHCPAddress, err)
	}
	return nil
}

// serveDatagrams serves TFTP and DHCP until ctx ends.
func (d *doors) serveDatagrams(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if d.tftpd != nil {
		g.Go(func() error { return d.tftpd.Serve(ctx, d.tftp) })
	}
	if d.dhcp != nil {
		g.Go(func() error { return d.dhcp.Serve(ctx) })
	}
	return g.Wait()
}

func (d *doors) dhcpAddr() netip.AddrPort {
	if d.dhcp == nil || len(d.dhcp.Addrs()) == 0 {
		return netip.AddrPort{}
	}
	return d.dhcp.Addrs()[0]
}

// close frees what Run has not closed already.
func (d *doors) close() {
	if d.api != nil {
		_ = d.api.Close()
	}
	if d.boot != nil {
		_ = d.boot.Close()
	}
	if d.tftp != nil {
		_ = d.tftp.Close()
	}
	if d.dhcp != nil {
		_ = d.dhcp.Close()
	}
}

// bindError says what to do about a port that cannot be had.
func bindError(what, flag, addr string, err error) error {
	e := &trivet.Error{Op: "listen for " + what, Name: addr, Err: fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		e.Hint = "another program has the port: stop it, or choose another with " + flag
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e.Hint = "this needs root or CAP_NET_BIND_SERVICE and CAP_NET_RAW; or choose another address with " + flag
	default:
		e.Hint = "choose another with " + flag
	}
	return e
}

// quiet takes what net/http has to say about bad clients.
func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
