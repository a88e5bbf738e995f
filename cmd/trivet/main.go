// Trivet is a bare-metal control plane in one binary: the server, the operator commands, the agent, and the lab.
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
	root.AddCommand(serverCommand(), agentCommand(), demoCommand(), labCommand(), manCommand(),
		proveCommand())
	return root
}

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. A second signal exits the program at once.
func untilSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		if s, ok := (<-signals).(syscall.Signal); ok {
			os.Exit(128 + int(s)) // the exit status of a shell
		}
	}()
	return ctx
}
