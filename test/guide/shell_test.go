package guide_test

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// shell is a shell in which one person works.
type shell struct {
	*testing.T
	*testhead.Process
	in   io.Writer
	ran  int // commands
	read int // bytes of its output
}

// commandTimeout bounds one command of a page.
const commandTimeout = 90 * time.Second

// newShell starts a shell in a directory.
func newShell(t *testing.T, dir string, env ...string) *shell {
	t.Helper()
	cmd := testhead.Command("", "bash", "--noprofile", "--norc")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := testhead.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return &shell{T: t, Process: p, in: in}
}

// run runs a command, and returns what a terminal would show, and the exit status.
func (s *shell) run(command string) (output string, status int) {
	s.Helper()
	s.ran++
	end := fmt.Sprintf(" end %d\x01", s.ran)
	_, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null; status=$?\n"+
		"printf '\\n\\001%%d end %d\\001' $status; (exit $status)\n", command, s.ran)
	if err != nil || !s.Log.Await(end, commandTimeout) || !s.Log.Contains(end) {
		s.Fatalf("the command does not end (%v): %s\n%s", err, command, s.Log.String()[s.read:])
	}
	output, number, _ := strings.Cut(s.Log.String()[s.read:], "\n\x01")
	s.read = len(s.Log.String())
	if status, err = strconv.Atoi(strings.TrimSuffix(number, end)); err != nil {
		s.Fatalf("%s: the exit status is %q", command, number)
	}
	if output != "" && !strings.HasSuffix(output, "\n") {
		output += "\n"
	}
	return output, status
}
