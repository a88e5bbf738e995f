package lab

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// Invalid options are refused before anything is started.
func TestDemoRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	if err := os.Mkdir(filepath.Join(used, "head0"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		demo Demo
		want string
	}{
		{Demo{Machines: 1, Heads: 1, Dir: used}, used + " contains an earlier demo; use an empty directory"},
		{Demo{Machines: 1, Heads: 3, Dir: used}, used + " contains an earlier demo; use an empty directory"},
		{Demo{Machines: 1, Heads: 0}, "--heads is 0; must be 1 to 9"},
		{Demo{Machines: 1, Heads: 10}, "--heads is 10; must be 1 to 9"},
		{Demo{Machines: 100, Heads: 2, Kill: true}, "--kill requires --heads 3 or more"},
		{Demo{Machines: 100, Heads: 1, Scenario: "x"}, `--scenario is "x"; must be install, faults or recovery`},
	} {
		c.demo.Timeout = time.Minute
		_, err := c.demo.Run(t.Context())
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
}

// Scenario recovery refuses what contradicts it.
func TestRecoveryRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	used := t.TempDir()
	if err := os.Mkdir(filepath.Join(used, "head-replaced"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		demo Demo
		want string
	}{
		{Demo{Machines: 10, Heads: 5}, "--heads is 5; scenario recovery has 3 heads"},
		{Demo{Machines: 12, Heads: 3, Kill: true}, "--kill scenario recovery decides by itself"},
		{Demo{Machines: 1, Heads: 3}, "--machines is 1; scenario recovery requires 2 to 100"},
		{Demo{Machines: 10, Heads: 3, History: "x"}, "--history scenario recovery writes no history"},
		{Demo{Machines: 10, Heads: 3, Dir: used}, used + " contains an earlier demo; use an empty directory"},
	} {
		c.demo.Scenario, c.demo.Timeout = ScenarioRecovery, time.Minute
		_, err := c.demo.Recover(t.Context())
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("the error is %v, want %q", err, c.want)
		}
	}
}

// The start of each head is printed, except with JSON, which prints only the summary.
func TestDemoPrintsStarts(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		var printed strings.Builder
		d := &Demo{Machines: 1, Heads: 3, Program: "/bin/false", Dir: t.TempDir(), Timeout: time.Second,
			JSON: asJSON, Err: &printed}
		if _, err := d.Run(t.Context()); err == nil {
			t.Fatal("the demo succeeded though its heads exited")
		}
		if want := "starting head 1 of 3\n"; asJSON == (printed.String() == want) {
			t.Errorf("JSON %v: printed %q", asJSON, printed.String())
		}
	}
}
