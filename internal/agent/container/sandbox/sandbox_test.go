package sandbox

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// run runs a shell script in a sandbox and returns its output.
func run(t *testing.T, ctx context.Context, s Spec, script string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	s.Args = append(s.Args, "/bin/sh", "-ec", script)
	s.Env = append(s.Env, "PATH=/usr/bin:/bin")
	s.Stdout, s.Stderr = &out, &out
	err := Run(ctx, s)
	return out.String(), err
}

// small is a root with a shell: the machine's own /usr, shown below it, and files of its own.
func small(t *testing.T) Spec {
	t.Helper()
	root := t.TempDir()
	for name, to := range map[string]string{"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64",
		"run": "/../../../../tmp"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "tmp"), 0o755); err != nil {
		t.Fatal(err)
	}
	return Spec{Root: root, Mounts: append([]Mount{Bind("/usr", "/usr")}, System(false)...)}
}

func TestProgramHasItsOwnRoot(t *testing.T) {
	s := small(t)
	s.Hostname = "sand"
	s.Mounts = append(s.Mounts, Mount{Source: "/nowhere", Target: "/nowhere", Optional: true},
		Bind("/etc/hostname", "/run/x/name"))
	out, err := run(t, t.Context(), s, `echo $$; hostname; ls /; ls /dev; cat /proc/1/comm; `+
		`[ -e /tmp/x/name ] && echo link stays inside; echo to stderr >&2`)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "1\nsand\nbin\ndev\nlib\nlib64\nproc\nrun\nsys\ntmp\nusr\nfd\nfull\nnull\nptmx\n" +
		"pts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero\nsh\nlink stays inside\nto stderr\n"
	if out != want {
		t.Errorf("got:\n%s\nwant:\n%s", out, want)
	}
	if mounts, _ := os.ReadFile("/proc/self/mountinfo"); strings.Contains(string(mounts), s.Root) {
		t.Errorf("a mount is left:\n%s", mounts)
	}
	if names, _ := filepath.Glob("/tmp/x/name"); len(names) > 0 {
		t.Error("a link in the root led a mount out of it")
	}
}

func TestWithoutARootOnlyMountsAreSeparate(t *testing.T) {
	dir := t.TempDir()
	s := Spec{Dir: dir, Mounts: []Mount{
		{Source: "proc", Target: "/proc", Type: "proc"}, {Source: "t", Target: dir, Type: "tmpfs"},
	}}
	out, err := run(t, t.Context(), s, `cd `+dir+`; touch file; ls; echo /proc/[0-9]*`)
	if err != nil || out != "file\n/proc/1\n" {
		t.Errorf("%v: %q", err, out)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestExitErrors(t *testing.T) {
	var exit *ExitError
	_, err := run(t, t.Context(), Spec{}, "exit 7")
	if !errors.As(err, &exit) || exit.Code != 7 {
		t.Errorf("exit 7: %v", err)
	}
	_, err = run(t, t.Context(), Spec{}, "sh -c 'kill -9 $$' || exit 3")
	if !errors.As(err, &exit) || exit.Code != 3 {
		t.Errorf("exit 3: %v", err)
	}
	var start *StartError
	if err := Run(t.Context(), Spec{}); !errors.As(err, &start) {
		t.Errorf("nothing to run: %v", err)
	}
	if err := Run(t.Context(), Spec{Args: []string{"no-such-program"}}); !errors.As(err, &start) ||
		start.Step != "find the program" {
		t.Errorf("no such program: %v", err)
	}
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), Spec{Args: []string{text}}); !errors.Is(err, syscall.EACCES) {
		t.Errorf("not a program: %v", err)
	}
	if err := Run(t.Context(), Spec{Args: []string{"x"}, Root: "/no/such/dir"}); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("no such root: %v", err)
	}
	if err := Run(t.Context(), Spec{Args: []string{"x"},
		Mounts: []Mount{Bind("/no/such", "/mnt")}}); !errors.As(err, &start) ||
		start.Step != "mount /mnt" {
		t.Errorf("no such source: %v", err)
	}
}

// TestCancelKillsAll: no process that the program started outlives it, not even one of another session.
func TestCancelKillsAll(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pipe := filepath.Join(t.TempDir(), "alive")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := run(t, ctx, Spec{}, `trap "" TERM INT HUP; setsid sh -c 'exec 3>`+pipe+
			`; trap "" TERM; echo up >&3; sleep 1000' & sleep 1000`)
		ended <- err
	}()
	f, err := os.Open(pipe) // waits for the grandchild to open it for writing
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if n, err := f.Read(make([]byte, 1)); n != 0 || err == nil { // its end closed the pipe
		t.Errorf("the grandchild still writes: %d, %v", n, err)
	}
}

// What a program leaves running does not keep it from ending.
func TestRemainingProcessesAreKilled(t *testing.T) {
	began := time.Now()
	out, err := run(t, t.Context(), Spec{}, "sleep 1000 & echo done")
	if err != nil || out != "done\n" || time.Since(began) > time.Minute {
		t.Errorf("%v: %q", err, out)
	}
}

func TestNoNet(t *testing.T) {
	s := small(t)
	s.NoNet = true
	out, err := run(t, t.Context(), s, "grep -c : /proc/net/dev")
	if err != nil || strings.TrimSpace(out) != "1" { // lo alone
		t.Errorf("%v: interfaces %s", err, out)
	}
}

func TestAnotherUser(t *testing.T) {
	out, err := run(t, t.Context(), Spec{UID: 1234, GID: 4321}, "id -u; id -g")
	if err != nil || out != "1234\n4321\n" {
		t.Errorf("%v: %q", err, out)
	}
}
