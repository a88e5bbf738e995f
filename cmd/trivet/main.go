// Trivet is a bare-metal control plane in one binary: a head's server, the operator's commands, the agent in a machine,
// and the lab.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/agent/installer/osinit"
	"github.com/trivet-project/trivet/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	if osinit.Called() { // in the installer OS this binary is the first process
		osinit.Main(runInstaller)
	}
	env := cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version}
	os.Exit(cli.Execute(untilSignal(), rootCommand(env)))
}

// rootCommand returns the trivet command with everything below it.
func rootCommand(env cli.Env) *cobra.Command {
	root := cli.Root(env)
	root.AddCommand(serverCommand(), agentCommand(), demoCommand(), labCommand())
	return root
}

// untilSignal ends with the first signal that asks the program to end. A second one ends the program at once; it is never
// lost, however soon it comes.
func untilSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		if s, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(s)) // as a shell tells it
		}
	}()
	return ctx
}
