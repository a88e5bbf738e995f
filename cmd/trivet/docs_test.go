package main

import (
	"testing"

	"github.com/trivet-project/trivet/internal/cli"
	"github.com/trivet-project/trivet/internal/docsgen"
)

// The reference page matches the commands.
func TestReferenceCLI(t *testing.T) {
	docsgen.Check(t, "../../docs/reference/cli.md", docsgen.CLI(rootCommand(cli.Env{})))
}

// The configuration file of packages has every flag of the server.
func TestReferenceConfig(t *testing.T) {
	docsgen.CheckFile(t, "../../packaging/config.yaml", cli.FlagFile(configTitle, serverCommand().Flags()))
}
