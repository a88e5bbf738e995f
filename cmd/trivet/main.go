// Trivet is a bare-metal control plane in one binary: the server, the operator commands, the agent, and the lab.
package main

import (
	"os"

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
	startSelected(os.Args)
	ctx, signals := cli.NotifySignals()
	env := cli.Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: version, Signals: signals}
	os.Exit(cli.Execute(ctx, rootCommand(env)))
}

// rootCommand returns the trivet command with everything below it.
func rootCommand(env cli.Env) *cobra.Command {
	root := cli.Root(env)
	root.AddCommand(serverCommand(), agentCommand(), demoCommand(), labCommand(), manCommand(),
		proveCommand())
	return root
}
