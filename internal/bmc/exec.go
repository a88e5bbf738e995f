package bmc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
)

// A machine without a BMC may have another device that switches its power, which a program of the operator controls:
// Config.Command in the directory Config.Commands of each head, called with one argument:
//
//	status         prints on, off or changing
//	on, off        sets the state; off cuts the power
//	boot-network   sets the device of the next boot only; exit status 64: the device cannot do that
//	boot-disk      the same
//
// Its standard input is one JSON object with address, user, password and uefi. It must have the same effect when it is
// called twice, or by two heads. Exit status 0 is success, 77 that user or password are refused; with any other one,
// what it prints to standard error is the cause. 64 and 77 are EX_USAGE and EX_NOPERM of sysexits(3).
const (
	exitUnsupported = 64
	exitRefused     = 77
	maxExecOutput   = 4 << 10
	// execRest is how long the output of a killed program is read.
	execRest = time.Second
)

// execInput is what the program reads.
type execInput struct {
	Address  string `json:"address"` // an IP address, with a port where Config.Address has one
	User     string `json:"user"`
	Password string `json:"password"`
	UEFI     bool   `json:"uefi"`
}

type execBMC struct {
	cfg   Config
	path  string
	input []byte
	mu    sync.Mutex // a program is run after the other
}

func openExec(ctx context.Context, cfg Config) (Client, error) {
	path, err := findCommand(cfg)
	if err != nil {
		return nil, fail("find the power command of", cfg, "install the program, executable and writable by root only, "+
			"in the directory of --power-commands of every head", err)
	}
	address, err := resolve(ctx, cfg, "0")
	switch {
	case errors.Is(err, errAddress):
		return nil, fail("use", cfg, hintAddress, err)
	case err != nil:
		return nil, fail("use", cfg, "check spec.bmc.address and the head's DNS", err)
	}
	b := &execBMC{cfg: cfg, path: path}
	in := execInput{Address: address.String(), User: cfg.User, Password: cfg.Password, UEFI: cfg.UEFI}
	if address.Port() == 0 {
		in.Address = address.Addr().String()
	}
	if b.input, err = json.Marshal(in); err != nil {
		return nil, err
	}
	_, err = b.Power(ctx)
	return b, err
}

// findCommand returns the path of the program. It runs with the head's rights, so only root may have written it.
func findCommand(cfg Config) (string, error) {
	if err := trivet.ValidateName(cfg.Command); err != nil {
		return "", fmt.Errorf("%w: command %.100q", trivet.ErrInvalid, cfg.Command)
	}
	path := filepath.Join(cfg.Commands, cfg.Command)
	for _, p := range []string{cfg.Commands, path} {
		info, err := os.Stat(p)
		if err != nil {
			return "", fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || stat.Uid != 0 && int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
			return "", fmt.Errorf("%w: users other than root may write %s", trivet.ErrForbidden, p)
		}
	}
	return path, nil
}

func (b *execBMC) Power(ctx context.Context) (State, error) {
	out, err := b.run(ctx, "status", trivet.ErrUnavailable)
	if err != nil {
		return "", err
	}
	switch state := State(strings.TrimSpace(out)); state {
	case On, Off, Changing:
		return state, nil
	}
	return "", fail("read power of", b.cfg, "", fmt.Errorf("%w: %s status printed %.40q; want on, off or changing",
		trivet.ErrInvalid, b.cfg.Command, out))
}

func (b *execBMC) SetPower(ctx context.Context, want State) error {
	if err := checkState(want); err != nil {
		return fail("set power of", b.cfg, "", err)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if now, err := b.Power(ctx); err != nil || now == want {
		return err
	}
	if _, err := b.run(ctx, string(want), trivet.ErrUnknown); err != nil {
		return err
	}
	return fail("power "+string(want), b.cfg, "", settle(ctx, want, b.Power))
}

func (b *execBMC) SetNextBoot(ctx context.Context, device Device) error {
	if err := checkDevice(device); err != nil {
		return fail("set next boot of", b.cfg, "", err)
	}
	_, err := b.run(ctx, "boot-"+string(device), trivet.ErrUnknown)
	if status := (*exec.ExitError)(nil); errors.As(err, &status) && status.ExitCode() == exitUnsupported {
		return nil // the machine's own boot order applies
	}
	return err
}

func (b *execBMC) Close() {}

// run runs the program and returns what it printed. kind is that of an error whose cause is not known.
func (b *execBMC) run(ctx context.Context, argument string, kind error) (string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := ended(ctx); err != nil { // nothing is sent
		return "", fail("run the power command of", b.cfg, "", fmt.Errorf("%w: %w", trivet.ErrUnavailable, err))
	}
	var stdout, stderr shortOutput
	cmd := exec.CommandContext(ctx, b.path, argument)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = "/", bytes.NewReader(b.input), &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with what it has started
	cmd.WaitDelay = execRest
	err := cmd.Run()
	if err == nil {
		return stdout.String(), nil
	}
	hint := "run the program by hand: " + b.path + " " + argument
	status := (*exec.ExitError)(nil)
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %s %s was stopped: %w", kind, b.cfg.Command, argument, ctx.Err())
	case errors.As(err, &status) && status.ExitCode() == exitRefused:
		err, hint = fmt.Errorf("%w: %s %s: %w", trivet.ErrUnauthenticated, b.cfg.Command, argument, err),
			"check user and password in its secret"
	default:
		err = fmt.Errorf("%w: %s %s: %w: %.300q", kind, b.cfg.Command, argument, err, strings.TrimSpace(stderr.String()))
	}
	return "", fail("run the power command of", b.cfg, hint, err)
}

// shortOutput keeps the beginning of what a program prints.
type shortOutput struct{ bytes.Buffer }

func (o *shortOutput) Write(p []byte) (int, error) {
	o.Buffer.Write(p[:min(len(p), maxExecOutput-o.Len())])
	return len(p), nil
}
