package bmc

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/trivet-project/trivet"
)

// maxEntryCommand bounds the command that enters a console, in bytes.
const maxEntryCommand = 256

const hintNoSSH = "use protocol ipmi, if the BMC has serial over LAN"

// consoleSystem is what a system says of its serial console (DSP0268, ComputerSystem 1.13).
type consoleSystem struct {
	SerialConsole struct {
		SSH *serialConsole `json:"SSH"`
	} `json:"SerialConsole"`
	Links struct {
		ManagedBy []link `json:"ManagedBy"`
	} `json:"Links"`
}

// serialConsole is a serial console by SSH.
type serialConsole struct {
	Enabled *bool  `json:"ServiceEnabled"` // nil: the service does not say it
	Port    int    `json:"Port"`           // 0: that of SSH
	Shared  bool   `json:"SharedWithManagerCLI"`
	Command string `json:"ConsoleEntryCommand"`
}

// consoleManager is what a manager says, in earlier services.
type consoleManager struct {
	SerialConsole struct {
		Types []string `json:"ConnectTypesSupported"`
	} `json:"SerialConsole"`
}

// sshTarget is where the console of a system is.
type sshTarget struct {
	address string // host:port
	command string // to run; empty: the console is what the service starts
}

// findConsole logs in, and returns where the service says that the console of the system is.
func findConsole(ctx context.Context, cfg Config) (sshTarget, error) {
	client, err := openRedfish(ctx, cfg)
	if err != nil {
		return sshTarget{}, err
	}
	defer client.Close()
	b := client.(*redfishBMC)
	var s consoleSystem
	if _, err := b.wire.call(ctx, http.MethodGet, b.system, "", nil, &s); err != nil {
		return sshTarget{}, fail(opOpenConsole, cfg, redfishHint(err), err)
	}
	if s.SerialConsole.SSH == nil {
		return sshTarget{}, fail(opOpenConsole, cfg, hintNoSSH, b.noConsole(ctx, s))
	}
	return s.SerialConsole.SSH.target(cfg, b.wire.base.Hostname())
}

// noConsole says why a system whose description has no console by SSH has none. A manager that lists SSH names neither
// a port nor a command: what SSH starts there may as well be the BMC's own command line.
func (b *redfishBMC) noConsole(ctx context.Context, s consoleSystem) error {
	var m consoleManager
	if len(s.Links.ManagedBy) > 0 { // an error of it does not matter
		_, _ = b.wire.call(ctx, http.MethodGet, s.Links.ManagedBy[0].ID, "", nil, &m)
	}
	if slices.Contains(m.SerialConsole.Types, "SSH") {
		return fmt.Errorf("%w whose port and command are known: its manager lists SSH, but the system %s has no "+
			"SerialConsole.SSH; newer firmware may have it", ErrNoConsole, b.system)
	}
	return fmt.Errorf("%w: the system %s has no SerialConsole.SSH in Redfish", ErrNoConsole, b.system)
}

// target checks what the service says. The host is that of the service.
func (c *serialConsole) target(cfg Config, host string) (sshTarget, error) {
	bad := strings.ContainsFunc(c.Command, unicode.IsControl) || len(c.Command) > maxEntryCommand
	switch {
	case c.Enabled != nil && !*c.Enabled:
		return sshTarget{}, fail(opOpenConsole, cfg, "enable SSH in the BMC",
			fmt.Errorf("%w: its SSH service is disabled", ErrNoConsole))
	case c.Port < 0 || c.Port > 65535 || bad:
		return sshTarget{}, fail(opOpenConsole, cfg, "", fmt.Errorf(
			"%w: the BMC reports port %d and command %.40q for the serial console", trivet.ErrInvalid, c.Port, c.Command))
	case c.Shared && c.Command == "":
		return sshTarget{}, fail(opOpenConsole, cfg, hintNoSSH, fmt.Errorf(
			"%w by SSH, but its own command line, and does not name the command that enters the console", ErrNoConsole))
	}
	port := c.Port
	if port == 0 {
		port = 22
	}
	return sshTarget{net.JoinHostPort(host, strconv.Itoa(port)), c.Command}, nil
}
