// Package bmc controls the management controllers (BMCs) of machines by IPMI, Redfish, or a program of
// the operator. It knows power and the next boot device, not machines.
//
// A BMC cannot refuse a late command, so every command sets a state and none toggles: sent twice, or by two heads,
// it has the same effect as once. There is no reset: the caller sets Off, reads Off, and sets On.
package bmc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
)

// State is whether a machine has power.
type State string

const (
	On       State = "on"
	Off      State = "off"      // verified: the BMC reports it
	Changing State = "changing" // between the two
)

// Device is what a machine boots from.
type Device string

const (
	Network Device = "network"
	Disk    Device = "disk"
)

// Client is a session with one BMC. Its calls are serialized.
//
// Each call ends when its context does; without a deadline it gets [DefaultTimeout]. Nothing is sent after that, so
// a context that ends with the caller's intent keeps a late command from being sent. Errors are [trivet.Error]
// around ErrInvalid, ErrUnauthenticated, ErrForbidden, ErrUnavailable (nothing was done) or ErrUnknown (it may have
// been done).
type Client interface {
	// Power returns the state.
	Power(ctx context.Context) (State, error)
	// SetPower sets the state to On or Off, and returns when the BMC reports it. Off cuts the power.
	SetPower(ctx context.Context, want State) error
	// SetNextBoot sets the device of the next boot only. It does not boot.
	SetNextBoot(ctx context.Context, device Device) error
	// Close ends the session. It may take seconds where the BMC does not answer.
	Close()
}

// The protocols.
const (
	IPMI    = "ipmi"    // IPMI 2.0 over LAN (RMCP+), with integrity and encryption
	Redfish = "redfish" // DMTF DSP0266
	Exec    = "exec"    // a program of the operator
)

// DefaultTimeout bounds a call whose context has no deadline.
const DefaultTimeout = time.Minute

// Config is how to reach a BMC. It formats without the password.
type Config struct {
	Protocol string // IPMI, Redfish or Exec
	// Command is the program of Exec, in the directory Commands.
	Command, Commands string
	// Address is a host or host:port. For Redfish also an https URL, whose path, if any, is that of the system:
	// https://10.0.0.9/redfish/v1/Systems/2.
	Address  string
	User     string
	Password string `json:"-"`
	// Allows reports whether the password may be sent to an address. It is asked for each address that is connected
	// to, so a name must resolve to allowed ones. nil: to none.
	Allows func(netip.Addr) bool `json:"-"`
	// Insecure accepts any certificate, and an http URL. Factory certificates of BMCs cannot be verified; with
	// Insecure, a host between head and BMC can read the password.
	Insecure bool
	// HostKeys are the host keys that the BMC's SSH service, which a Redfish service names for the serial console, may
	// have: lines as in authorized_keys, without options. Empty: any with Insecure, else none.
	HostKeys string
	// UEFI is set if the machine boots by UEFI, not BIOS. IPMI BMCs need it, or may boot from the network in the
	// other mode.
	UEFI bool
}

// Format writes protocol, user and address, for any verb.
func (c Config) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%s://%s@%s", c.Protocol, c.User, c.Address)
}

// MarshalJSON writes what Format writes.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(fmt.Sprint(c)) }

// Open logs in to a BMC.
func Open(ctx context.Context, cfg Config) (Client, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	switch cfg.Protocol {
	case IPMI:
		return openIPMI(ctx, cfg)
	case Redfish:
		return openRedfish(ctx, cfg)
	case Exec:
		return openExec(ctx, cfg)
	}
	return nil, fail("log in to", cfg, "use ipmi, redfish or exec",
		fmt.Errorf("%w: protocol %q", trivet.ErrInvalid, cfg.Protocol))
}

// errAddress: the password must not be sent to the address.
var errAddress = fmt.Errorf("%w: its secret may not be sent to this address", trivet.ErrForbidden)

const hintAddress = "an admin adds the BMC's address to spec.addresses of its secret"

// check returns an error unless the password may be sent to an address.
func (c Config) check(a netip.Addr) error {
	if c.Allows != nil && c.Allows(a) {
		return nil
	}
	return fmt.Errorf("%s: %w", a, errAddress)
}

func checkState(want State) error {
	if want != On && want != Off {
		return fmt.Errorf("%w: power cannot be set to %q", trivet.ErrInvalid, want)
	}
	return nil
}

func checkDevice(device Device) error {
	if device != Network && device != Disk {
		return fmt.Errorf("%w: cannot boot from %q", trivet.ErrInvalid, device)
	}
	return nil
}

// bounded sets the default deadline of a ctx that has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

// ended returns why nothing is sent any more; nil: ctx has not ended. A process that was paused may be past the
// deadline before ctx notices, and a BMC cannot refuse what is sent late.
func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if d, ok := ctx.Deadline(); ok && !time.Now().Before(d) {
		return context.DeadlineExceeded
	}
	return nil
}

// fail wraps an error with operation, BMC and hint. It returns nil and wrapped errors as they are.
func fail(op string, cfg Config, hint string, err error) error {
	var known *trivet.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &trivet.Error{Op: op, Kind: "BMC", Name: cfg.Address, Hint: hint, Err: err}
}

// settle polls the state until it is the wanted one. A change of power takes up to some seconds.
func settle(ctx context.Context, want State, power func(context.Context) (State, error)) error {
	var last State
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		got, err := power(ctx)
		if err == nil && got == want {
			return nil
		}
		if err == nil {
			last = got
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: the power was set to %s, but the BMC last reported %q: %w",
				trivet.ErrUnknown, want, last, errors.Join(ctx.Err(), err))
		case <-time.After(wait):
		}
	}
}

// Times between two polls of settle: the first and the longest.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)
