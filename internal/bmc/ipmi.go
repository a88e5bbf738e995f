package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// Bounds of IPMI 2.0 (§22.28, §22.30), in bytes.
const (
	maxIPMIUser     = 16
	maxIPMIPassword = 20
)

// ipmiIdle is how long a session may be idle. BMCs end it after 60 s (§6.12.15).
const ipmiIdle = 40 * time.Second

// Network functions and commands (appendix G).
const (
	netChassis = 0x00
	netApp     = 0x06

	cmdChassisStatus  = 0x01
	cmdChassisControl = 0x02
	cmdSetBootOptions = 0x08
	cmdSetPrivilege   = 0x3b
	cmdCloseSession   = 0x3c
)

type ipmiBMC struct {
	cfg     Config
	address netip.AddrPort

	mu      sync.Mutex
	session *rmcpSession // guarded by mu; nil: none
	used    time.Time    // guarded by mu
}

func openIPMI(ctx context.Context, cfg Config) (Client, error) {
	if len(cfg.User) > maxIPMIUser || len(cfg.Password) > maxIPMIPassword {
		return nil, fail("log in to", cfg, "use a shorter user or password", fmt.Errorf(
			"%w: IPMI accepts at most %d bytes as user and %d as password", trivet.ErrInvalid, maxIPMIUser,
			maxIPMIPassword))
	}
	address, err := resolve(ctx, cfg, ipmiPort)
	switch {
	case errors.Is(err, errAddress):
		return nil, fail("log in to", cfg, hintAddress, err)
	case err != nil:
		return nil, fail("log in to", cfg, "check spec.bmc.address and the head's DNS", err)
	}
	b := &ipmiBMC{cfg: cfg, address: address}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.login(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// ipmiPort is where a BMC listens (§13.1.2).
const ipmiPort = "623"

// resolve returns the first address of the BMC that its password may be sent to. port is the one where its address has
// none.
func resolve(ctx context.Context, cfg Config, port string) (netip.AddrPort, error) {
	address := cfg.Address
	host := address
	if h, p, err := net.SplitHostPort(address); err == nil {
		host, port = h, p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" {
		return netip.AddrPort{}, fmt.Errorf("%w: address %.100q; want host or host:port", trivet.ErrInvalid, address)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", strings.Trim(host, "[]"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	var refused []error
	for _, ip := range ips {
		if err := cfg.check(ip.Unmap()); err != nil {
			refused = append(refused, err)
			continue
		}
		return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
	}
	return netip.AddrPort{}, errors.Join(refused...)
}

func (b *ipmiBMC) Power(ctx context.Context) (state State, err error) {
	err = b.do(ctx, "read power of", func(ctx context.Context, s *rmcpSession) error {
		state, err = power(ctx, s)
		return err
	})
	return state, err
}

// power sends Get Chassis Status (§28.2).
func power(ctx context.Context, s *rmcpSession) (State, error) {
	data, err := s.call(ctx, netChassis, cmdChassisStatus)
	switch {
	case err != nil:
		return "", unsent(err, trivet.ErrUnavailable)
	case len(data) < 3:
		return "", fmt.Errorf("%w: a chassis status of %d bytes", trivet.ErrInvalid, len(data))
	case data[0]&1 != 0:
		return On, nil
	}
	return Off, nil
}

func (b *ipmiBMC) SetPower(ctx context.Context, want State) error {
	if err := checkState(want); err != nil {
		return fail("set power of", b.cfg, "", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	control := map[State]byte{Off: 0, On: 1}[want] // §28.3
	err := b.do(ctx, "power "+string(want), func(ctx context.Context, s *rmcpSession) error {
		now, err := power(ctx, s)
		if err != nil || now == want {
			return err
		}
		_, err = s.call(ctx, netChassis, cmdChassisControl, control)
		return unsent(err, trivet.ErrUnknown)
	})
	if err != nil {
		return err
	}
	return fail("power "+string(want), b.cfg, "", settle(ctx, want, b.Power))
}

func (b *ipmiBMC) SetNextBoot(ctx context.Context, device Device) error {
	if err := checkDevice(device); err != nil {
		return fail("set next boot of", b.cfg, "", err)
	}
	// Boot flags (§28.12, table 28-14): valid, for one boot.
	flags := byte(0x80)
	if b.cfg.UEFI {
		flags |= 0x20
	}
	selector := map[Device]byte{Network: 1, Disk: 2}[device] << 2
	return b.do(ctx, "set next boot of", func(ctx context.Context, s *rmcpSession) error {
		_, err := s.call(ctx, netChassis, cmdSetBootOptions, 5, flags, selector, 0, 0, 0)
		return unsent(err, trivet.ErrUnknown)
	})
}

func (b *ipmiBMC) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), rmcpTimeout)
	defer cancel()
	b.drop(ctx)
}

// do runs commands in a session. After a command without an answer the session is dropped, and the next call logs
// in.
func (b *ipmiBMC) do(ctx context.Context, op string, f func(context.Context, *rmcpSession) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != nil && time.Since(b.used) > ipmiIdle {
		b.drop(ctx)
	}
	if b.session == nil {
		if err := b.login(ctx); err != nil {
			return err
		}
	}
	b.used = time.Now()
	err := f(ctx, b.session)
	if errors.Is(err, errNoAnswer) {
		b.session.conn.Close()
		b.session = nil
	}
	hint := ""
	if errors.Is(err, trivet.ErrForbidden) {
		hint = "give the BMC's user the privilege operator or administrator"
	}
	return fail(op, b.cfg, hint, err)
}

// login creates a session and sets its privilege.
func (b *ipmiBMC) login(ctx context.Context) error {
	s, err := dialRMCP(ctx, b.address, b.cfg.User, b.cfg.Password)
	if err == nil {
		b.session, b.used = s, time.Now()
		if _, err = s.call(ctx, netApp, cmdSetPrivilege, privilegeOperator); err != nil {
			b.drop(ctx)
		}
	}
	hint := "check that the address answers and IPMI over LAN is enabled in the BMC"
	switch {
	case errors.Is(err, trivet.ErrUnauthenticated):
		hint = "check user and password in its secret, and that IPMI over LAN is enabled for the user"
	case errors.As(err, new(*completionError)):
		err = fmt.Errorf("%w: the user lacks the operator privilege: %w", trivet.ErrForbidden, err)
		hint = "give the BMC's user the privilege operator or administrator"
	default:
		err = unsent(err, trivet.ErrUnavailable)
	}
	return fail("log in to", b.cfg, hint, err)
}

// drop ends the session, and closes it on the BMC if ctx permits.
func (b *ipmiBMC) drop(ctx context.Context) {
	if b.session == nil {
		return
	}
	// The error is ignored: the BMC ends an idle session.
	b.session.call(ctx, netApp, cmdCloseSession, le32(b.session.bmc)...)
	b.session.conn.Close()
	b.session = nil
}

// unsent adds the kind to an error of a command without an answer.
func unsent(err, kind error) error {
	if errors.Is(err, errNoAnswer) {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}
