package bmc

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet"
)

// Console is the serial console of a machine. Read and Write are safe to call at the same time. What is read is what
// the machine wrote, with control characters.
type Console interface {
	// Reader reads what the machine wrote. Its error, where the console was not closed by Close, says why it has ended.
	io.Reader
	// Writer sends characters to the machine, and returns when the BMC has accepted them. By IPMI it fails with
	// ErrUnavailable where the machine does not take them; the console stays open then.
	io.Writer
	// Break sends a break.
	Break() error
	// Close ends the session. It may take seconds where the BMC does not answer.
	Close()
}

// Why there is no console, or no longer.
var (
	// ErrConsoleInUse: another session has the console. It is an ErrConflict.
	ErrConsoleInUse = fmt.Errorf("%w: the console is in use", trivet.ErrConflict)
	// ErrNoConsole: the BMC offers none. It is an ErrInvalid.
	ErrNoConsole = fmt.Errorf("%w: the BMC offers no serial console", trivet.ErrInvalid)
	// ErrConsoleEnded: the BMC ended the session. It is an ErrUnavailable.
	ErrConsoleEnded = fmt.Errorf("%w: the BMC ended the console: another user took it, or it was disabled",
		trivet.ErrUnavailable)
)

// consoleKeepalive is the interval of a request to which the BMC responds, so that it does not end the session. A BMC
// that sends nothing for three intervals is lost. Tests shorten it.
var consoleKeepalive = 15 * time.Second

// keepalives counts the requests after which the BMC has sent nothing. It measures no time: a head that was paused has
// not read what the BMC sent meanwhile.
type keepalives struct{ unanswered atomic.Int32 }

// heard is called for each packet of the BMC.
func (k *keepalives) heard() { k.unanswered.Store(0) }

// lost is called before each request and reports whether the BMC is lost.
func (k *keepalives) lost() bool { return k.unanswered.Add(1) > 3 }

const opOpenConsole = "open console of"

// OpenConsole opens the console of a machine: by IPMI serial over LAN, or by SSH where the Redfish service offers that.
// Where another IPMI session has it, it fails with [ErrConsoleInUse], unless take is set: then it ends that session. A
// BMC decides itself how many SSH sessions it permits.
func OpenConsole(ctx context.Context, cfg Config, take bool) (Console, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	switch cfg.Protocol {
	case IPMI:
		return openSOL(ctx, cfg, take)
	case Redfish:
		return openSSH(ctx, cfg)
	}
	return nil, fail(opOpenConsole, cfg, "", fmt.Errorf("%w: its protocol is %s, and only ipmi and redfish have one here",
		ErrNoConsole, cfg.Protocol))
}
