package cli

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/trivet-project/trivet/internal/testhead"
)

// The scripts in testdata run the commands as programs; those that need a head get a real one, see head_test.go.
// The heads of these tests have records with addresses of other hosts, to which they send nothing.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "trivet" {
		testhead.OwnNetwork()
	}
	testscript.Main(m, map[string]func(){"trivet": func() {
		ctx, signals := NotifySignals()
		env := Env{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Version: "v0-test", Signals: signals}
		os.Exit(Execute(ctx, Root(env)))
	}})
}

func TestNetworkIsOfThisPackage(t *testing.T) {
	if all, err := net.Interfaces(); err != nil || len(all) != 1 || all[0].Flags&net.FlagLoopback == 0 {
		t.Errorf("the tests reach other hosts by %+v, %v", all, err)
	}
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
