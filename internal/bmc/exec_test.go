package bmc_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// command writes a shell script as power command.
func command(t *testing.T, script string) bmc.Config {
	t.Helper()
	dir := t.TempDir()
	if err := bmctest.WriteProgram(filepath.Join(dir, "plug"), "#!/bin/sh\n"+script+"\n"); err != nil {
		t.Fatal(err)
	}
	return bmc.Config{Protocol: bmc.Exec, Command: "plug", Commands: dir, Address: "127.0.0.1", User: "root",
		Password: "correct horse", Allows: netip.Addr.IsLoopback}
}

// What a power command gets: the argument, one JSON object, and nothing of the head's environment. The password is in
// neither its arguments nor its environment.
func TestCommandInput(t *testing.T) {
	t.Setenv("TRIVET_JOIN_TOKEN", "sealed")
	cfg := command(t, `{ echo "$@"; cat; echo; env; } > "${0%/*}/input"; echo on`)
	cfg.UEFI = true
	open(t, cfg)
	got, err := os.ReadFile(filepath.Join(cfg.Commands, "input"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitN(string(got), "\n", 3)
	if want := `{"address":"127.0.0.1","user":"root","password":"correct horse","uefi":true}`; lines[0] != "status" ||
		lines[1] != want {
		t.Errorf("it got %q and %s; want status and %s", lines[0], lines[1], want)
	}
	if strings.Contains(lines[2], "sealed") || strings.Contains(lines[2], "horse") {
		t.Errorf("its environment is\n%s", lines[2])
	}
}

// Programs that anyone may write, have no name of a file in the directory, or are not there, are not run.
func TestCommandsThatAreNotRun(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*bmc.Config) error
		want   error
	}{
		"missing":          {func(c *bmc.Config) error { c.Command = "other"; return nil }, trivet.ErrUnavailable},
		"path":             {func(c *bmc.Config) error { c.Command = "../plug"; return nil }, trivet.ErrInvalid},
		"no command":       {func(c *bmc.Config) error { c.Command = ""; return nil }, trivet.ErrInvalid},
		"no directory":     {func(c *bmc.Config) error { c.Commands = ""; return nil }, trivet.ErrUnavailable},
		"file of all":      {func(c *bmc.Config) error { return os.Chmod(c.Commands+"/plug", 0o777) }, trivet.ErrForbidden},
		"directory of all": {func(c *bmc.Config) error { return os.Chmod(c.Commands, 0o777) }, trivet.ErrForbidden},
		"another's file": {func(c *bmc.Config) error { return os.Chown(c.Commands+"/plug", 65534, 65534) },
			trivet.ErrForbidden},
		"address that is not allowed": {func(c *bmc.Config) error { c.Allows = nil; return nil }, trivet.ErrForbidden},
	} {
		cfg := command(t, `touch "${0%/*}/ran"; echo on`)
		if err := c.change(&cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := bmc.Open(t.Context(), cfg); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if _, err := os.Stat(filepath.Join(cfg.Commands, "ran")); err == nil {
			t.Errorf("%s: it ran", name)
		}
	}
}

// What a program answers wrongly is an error that says so, and is bounded.
func TestCommandAnswers(t *testing.T) {
	for script, c := range map[string]struct {
		want error
		text string
	}{
		"echo maybe":                        {trivet.ErrInvalid, `printed "maybe\n"`},
		"echo no route to plug >&2; exit 3": {trivet.ErrUnavailable, `exit status 3: "no route to plug"`},
		"exit 77":                           {trivet.ErrUnauthenticated, "check user and password"},
	} {
		_, err := bmc.Open(t.Context(), command(t, script))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", script, err, c.want, c.text)
		}
	}
}

// A program that prints without end, or does not end, is stopped with the caller's context.
func TestEndlessCommand(t *testing.T) {
	for _, script := range []string{"yes on", "sleep 1h"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := bmc.Open(ctx, command(t, script))
		cancel()
		if !errors.Is(err, trivet.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want unavailable and deadline exceeded", script, err)
		}
	}
}

// A program that cannot select the next boot leaves that to the machine.
func TestCommandWithoutNextBoot(t *testing.T) {
	c := open(t, command(t, `case $1 in status) echo off;; boot-*) exit 64;; esac`))
	if err := c.SetNextBoot(t.Context(), bmc.Network); err != nil {
		t.Error(err)
	}
}

// When its context ends, a program is killed with all that it has started: it sends nothing after that.
func TestStoppedCommand(t *testing.T) {
	cfg := command(t, `[ $1 = status ] && { echo off; exit; }
sleep 1h &
echo $! > "${0%/*}/pid.new"
mv "${0%/*}/pid.new" "${0%/*}/pid"
wait`)
	c := open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.SetPower(ctx, bmc.On) }()
	var child string
	for child == "" {
		time.Sleep(10 * time.Millisecond)
		text, _ := os.ReadFile(filepath.Join(cfg.Commands, "pid"))
		child = strings.TrimSpace(string(text))
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !errors.Is(err, trivet.ErrUnknown) {
		t.Errorf("%v, want unknown and canceled", err)
	}
	for end := time.Now().Add(time.Minute); runs(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what it has started still runs")
		}
	}
}

// runs reports whether a process runs: one that was killed may wait for its parent to read its status.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
