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

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/trivet-project/trivet"
)

// Bounds of IPMI 2.0 (§22.28, §22.30), in bytes.
const (
	maxIPMIUser     = 16
	maxIPMIPassword = 20
)

// ipmiSuites are the cipher suites that are offered, best first: 17 (HMAC-SHA256, AES-128) and 3 (HMAC-SHA1, AES-128).
// The others leave out authentication, integrity or encryption. They are tried without asking the BMC which it has, since
// some do not answer that.
var ipmiSuites = []types.CipherSuiteID{17, 3}

// ipmiSession is how long a session is used. It is shorter than the idle time after which BMCs drop one (60 s), and than
// the period of the library's keep-alive (30 s), which must not run beside a command.
const ipmiSession = 20 * time.Second

// ipmiTry is how long an answer is waited for before the same packet is sent again, up to ipmiRetries times.
const (
	ipmiTry     = time.Second
	ipmiRetries = 4
)

type ipmiBMC struct {
	cfg  Config
	host string
	port int

	mu     sync.Mutex
	conn   *client.Client // guarded by mu; nil: no session
	opened time.Time      // guarded by mu
}

func openIPMI(ctx context.Context, cfg Config) (Client, error) {
	b := &ipmiBMC{cfg: cfg}
	if len(cfg.User) > maxIPMIUser || len(cfg.Password) > maxIPMIPassword {
		return nil, fail("log in to", cfg, "choose shorter ones",
			fmt.Errorf("%w: IPMI takes at most %d bytes as user and %d as password", trivet.ErrInvalid, maxIPMIUser, maxIPMIPassword))
	}
	if err := b.resolve(ctx); err != nil {
		return nil, fail("log in to", cfg, "check spec.bmc.address and the head's DNS", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, b.connect(ctx)
}

// resolve finds the BMC's IP address, under ctx, which the library does not do.
func (b *ipmiBMC) resolve(ctx context.Context) error {
	host, port := b.cfg.Address, "623"
	if h, p, err := net.SplitHostPort(host); err == nil {
		host, port = h, p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" {
		return fmt.Errorf("%w: address %q; want host or host:port", trivet.ErrInvalid, b.cfg.Address)
	}
	b.port = int(n)
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
		addr = addrs[0].Unmap()
	}
	b.host = addr.String()
	if addr.Is6() {
		b.host = "[" + b.host + "]" // the library joins host and port by a colon
	}
	return nil
}

func (b *ipmiBMC) Power(ctx context.Context) (State, error) {
	var state State
	err := b.do(ctx, "ask power of", func(ctx context.Context, c *client.Client) error {
		status, err := c.GetChassisStatus(ctx)
		if err != nil {
			return ipmiError(err, trivet.ErrUnavailable)
		}
		state = Off
		if status.PowerIsOn {
			state = On
		}
		return nil
	})
	return state, err
}

func (b *ipmiBMC) SetPower(ctx context.Context, want State) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := checkState(want); err != nil {
		return fail("set power of", b.cfg, "", err)
	}
	control := chassis.ChassisControlPowerDown
	if want == On {
		control = chassis.ChassisControlPowerUp
	}
	err := b.do(ctx, "power "+string(want), func(ctx context.Context, c *client.Client) error {
		status, err := c.GetChassisStatus(ctx)
		if err != nil {
			return ipmiError(err, trivet.ErrUnavailable)
		}
		if status.PowerIsOn == (want == On) {
			return nil
		}
		_, err = c.ChassisControl(ctx, control)
		return ipmiError(err, trivet.ErrUnknown)
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
	selector := types.BootDeviceSelectorForcePXE
	if device == Disk {
		selector = types.BootDeviceSelectorForceHardDrive
	}
	mode := types.BIOSBootTypeLegacy
	if b.cfg.UEFI {
		mode = types.BIOSBootTypeEFI
	}
	return b.do(ctx, "set next boot of", func(ctx context.Context, c *client.Client) error {
		return ipmiError(c.SetBootDevice(ctx, selector, mode, false), trivet.ErrUnknown)
	})
}

func (b *ipmiBMC) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 2*ipmiTry)
	defer cancel()
	b.drop(ctx)
}

// do runs one command under a session that is young enough. After an error without an answer the session is dropped, and
// the next call makes a new one.
func (b *ipmiBMC) do(ctx context.Context, op string, f func(context.Context, *client.Client) error) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil && time.Since(b.opened) > ipmiSession {
		b.drop(ctx)
	}
	if b.conn == nil {
		if err := b.connect(ctx); err != nil {
			return err
		}
	}
	err := f(ctx, b.conn)
	if err == nil {
		return nil
	}
	var refused *types.ResponseError
	if !errors.As(err, &refused) {
		gone, cancel := context.WithCancel(ctx)
		cancel()
		b.drop(gone)
	}
	return fail(op, b.cfg, "", err)
}

// connect makes a session.
func (b *ipmiBMC) connect(ctx context.Context) error {
	conn, err := client.NewClient(b.host, b.port, b.cfg.User, b.cfg.Password)
	if err != nil {
		return fail("log in to", b.cfg, "", fmt.Errorf("%w: %w", trivet.ErrInvalid, err))
	}
	conn.WithCipherSuiteID(ipmiSuites...).WithTimeout(ipmiTry).WithRetry(ipmiRetries).
		WithMaxPrivilegeLevel(types.PrivilegeLevelOperator) // enough for all that is sent here
	b.conn, b.opened = conn, time.Now()
	err = conn.Connect(ctx)
	if err == nil {
		return nil
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	b.drop(gone) // frees the socket; there is no session to end
	if wrongLogin(err) {
		return fail("log in to", b.cfg, "check user and password in its secret, and that IPMI over LAN is enabled for the user",
			fmt.Errorf("%w: %w", trivet.ErrUnauthenticated, err))
	}
	return fail("log in to", b.cfg, "check that the address answers and IPMI over LAN is enabled in the BMC",
		fmt.Errorf("%w: %w", trivet.ErrUnavailable, err))
}

// drop ends the session, if ctx allows to say so to the BMC, and closes the socket.
func (b *ipmiBMC) drop(ctx context.Context) {
	if b.conn == nil {
		return
	}
	b.conn.Close(ctx) // its error changes nothing: the BMC drops the session by itself
	b.conn = nil
}

// ipmiError gives a failed command its kind: silent where the BMC did not answer, else by its completion code.
func ipmiError(err, silent error) error {
	var refused *types.ResponseError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		return fmt.Errorf("%w: %w", silent, err)
	case refused.CompletionCode() == types.CodeInsufficientPrivilege:
		return fmt.Errorf("%w: the user lacks the privilege (operator or administrator): %w", trivet.ErrForbidden, err)
	case refused.CompletionCode() == types.CodeNodeBusy:
		return fmt.Errorf("%w: the BMC is busy: %w", trivet.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: the BMC refused: %w", trivet.ErrInvalid, err)
}

// wrongLogin tells a refused login from a BMC that cannot be reached. The library joins the errors of its tries as text.
func wrongLogin(err error) bool {
	text := err.Error()
	return strings.Contains(text, client.ErrRAKPAuthentication.Error()) || strings.Contains(text, "Unauthorized")
}
