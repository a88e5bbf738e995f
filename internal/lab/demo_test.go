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
	} {
		c.demo.Timeout = time.Minute
		_, err := c.demo.Run(t.Context())
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
