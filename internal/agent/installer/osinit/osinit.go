// Package osinit is process 1 of the installer OS that internal/platform builds, in the trivet binary. It mounts,
// loads drivers, gets an address, runs the agent and, when that has ended, reboots or powers off.
//
// The binary has three roles, by how it is started. Process 1 does all of that and is kept small. The agent is a child
// process: when it crashes, process 1 reports it on the console and starts it again. The kernel calls the binary as
// /sbin/modprobe for drivers that are needed later, such as a file system's.
//
// cmdline, modules (the indexes), uevent, lease and links are pure; the other files do the I/O.
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

// After is what the machine does once the agent has ended.
type After int

// The ends.
const (
	Reboot After = iota
	PowerOff
	Kexec // start the kernel that was loaded with kexec_file_load(2)
)

func (a After) String() string { return [...]string{"reboot", "power off", "kexec"}[a] }

// Env is what process 1 passes to the agent.
type Env struct {
	Cmdline   Cmdline `json:"cmdline"`
	BootID    string  `json:"bootID"` // the kernel's, random, one per boot
	Interface string  `json:"interface"`
	MAC       string  `json:"mac"` // of Interface, as aa:bb:cc:dd:ee:ff
	Lease     Lease   `json:"lease"`
	// Restarts counts the agents that failed in this boot; LastOutput is the end of the last one's output.
	Restarts   int    `json:"restarts,omitempty"`
	LastOutput string `json:"lastOutput,omitempty"`
}

const (
	envFile   = "/run/trivet/env.json"
	roleName  = "TRIVET_INIT" // environment variable; the role of a child process
	roleAgent = "agent"
	exitAfter = 64 // exit status of an agent that succeeded: exitAfter + After
)

// Called reports whether this process was started as /init or by it, so that main must call [Main] and nothing else.
func Called() bool {
	return os.Getenv(roleName) == roleAgent || path.Base(os.Args[0]) == "modprobe" ||
		os.Getpid() == 1 && os.Args[0] == "/init"
}

// Main runs the role that this process was started for. It does not return. The context that run gets ends on SIGTERM.
func Main(run func(ctx context.Context, env Env) (After, error)) {
	switch {
	case path.Base(os.Args[0]) == "modprobe":
		os.Exit(modprobe(os.Args[1:]))
	case os.Getenv(roleName) == roleAgent:
		os.Exit(agent(run))
	}
	boot()
}

// agent runs the caller's function in this process and returns the exit status.
func agent(run func(ctx context.Context, env Env) (After, error)) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	os.Unsetenv(roleName) // must not reach programs that the agent starts
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
