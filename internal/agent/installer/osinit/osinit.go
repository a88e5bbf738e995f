// Package osinit makes the trivet binary the first process of the installer OS that internal/platform builds. It mounts,
// loads drivers, gets an address, runs the agent and, when that has ended, reboots or powers off.
//
// The binary plays three parts, told apart by how it was started. As process 1 it does all of that and is small enough not
// to crash. The agent is a child process: when it crashes, process 1 says so on the console and starts it again. And the
// kernel calls it as /sbin/modprobe for drivers that are first needed later, such as a file system's.
//
// Parsing is pure and apart from acting: cmdline, modules (the indexes), uevent, lease and links decide; the rest does.
package osinit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// After is what the machine shall do once the agent has ended.
type After int

// The ends.
const (
	Reboot After = iota
	PowerOff
	Kexec // start the kernel that was loaded with kexec_file_load(2)
)

func (a After) String() string { return [...]string{"reboot", "power off", "kexec"}[a] }

// Env is what process 1 found out and hands to the agent.
type Env struct {
	Cmdline   Cmdline `json:"cmdline"`
	BootID    string  `json:"bootID"` // the kernel's, random, one per boot
	Interface string  `json:"interface"`
	MAC       string  `json:"mac"` // of Interface, as aa:bb:cc:dd:ee:ff
	Lease     Lease   `json:"lease"`
	// Restarts counts the agents that ended badly in this boot; LastWords is the end of what the last of them printed.
	Restarts  int    `json:"restarts,omitempty"`
	LastWords string `json:"lastWords,omitempty"`
}

const (
	envFile   = "/run/trivet/env.json"
	partName  = "TRIVET_INIT" // environment variable; says which part a child plays
	partAgent = "agent"
	exitAfter = 64 // exit status of an agent that ended well: exitAfter + After
)

// Called reports whether this process was started as /init or by it, so that main must call [Main] and nothing else.
func Called() bool {
	return os.Getenv(partName) == partAgent || path.Base(os.Args[0]) == "modprobe" ||
		os.Getpid() == 1 && os.Args[0] == "/init"
}

// Main plays the part that this process was started for. It does not return. The context that run gets ends on SIGTERM.
func Main(run func(ctx context.Context, env Env) (After, error)) {
	switch {
	case path.Base(os.Args[0]) == "modprobe":
		os.Exit(modprobe(os.Args[1:]))
	case os.Getenv(partName) == partAgent:
		os.Exit(agent(run))
	}
	boot()
}

// agent runs the caller's function in a process of its own and returns the exit status.
func agent(run func(ctx context.Context, env Env) (After, error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	os.Unsetenv(partName) // is not for what the agent starts
	debug.SetTraceback("all")
	env, err := readEnv()
	if err == nil {
		var after After
		if after, err = run(ctx, env); err == nil {
			return exitAfter + int(after)
		}
	}
	fmt.Fprintln(os.Stderr, "agent:", err)
	return 1
}

func readEnv() (Env, error) {
	var env Env
	data, err := os.ReadFile(envFile)
	if err != nil {
		return env, err
	}
	return env, json.Unmarshal(data, &env)
}

func (e Env) write() error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(path.Dir(envFile), 0o700), os.WriteFile(envFile, data, 0o600))
}
