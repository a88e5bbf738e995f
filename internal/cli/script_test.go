package cli

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts in testdata run the commands as programs; those that need a head get a real one, see head_test.go.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"trivet": func() {
		ctx, signals := NotifySignals()
		env := Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: "v0-test", Signals: signals}
		os.Exit(Execute(ctx, Root(env)))
	}})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/offline", Setup: offline,
		UpdateScripts: os.Getenv("UPDATE") != ""})
}

// offline gives a script a home without a cluster.
func offline(e *testscript.Env) error {
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/config")
	return nil
}
