// Trivet is a bare-metal control plane in one binary: a head's server, the operator's commands, the agent in a machine,
// and the lab.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/trivet-project/trivet/internal/agent/osinit"
	"github.com/trivet-project/trivet/internal/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	if osinit.Called() { // in the installer OS this binary is the first process
		osinit.Main(runInstaller)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	env := cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version}
	root := cli.Root(env)
	root.AddCommand(serverCommand(), agentCommand(), demoCommand(), labCommand())
	os.Exit(cli.Execute(ctx, root))
}
