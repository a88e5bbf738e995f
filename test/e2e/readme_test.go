package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The README's first real installation works as it is written: its commands are taken from its text and run in order, in a
// folder that has what the checkout has for them. The machine is powered on by IPMI.
func TestREADME(t *testing.T) {
	r := newReader(t)
	build, lab, head, shell, rest := r.blocks[0], r.blocks[1], r.blocks[2], r.blocks[3], r.blocks[4:]

	r.run("bash", "-ec", strings.TrimPrefix(build, "make build image\n"))
	r.start("lab", lab)
	r.waitFor("lab/machines.yaml")
	r.start("head", head)
	r.waitFor("lab/head0/admin.yaml")
	inside := strings.Fields(strings.TrimSpace(shell)) // ends in bash
	r.run(inside[0], append(inside[1:], "-ec", "for i in {1..100}; do bin/trivet get heads && exit; sleep 0.1; done; exit 1")...)
	var out string
	for _, block := range rest {
		out = r.run(inside[0], append(inside[1:], "-ec", block)...)
		t.Log(out)
	}
	if !strings.Contains(out, "\nweb1\n") || !strings.Contains(out, "lab1 is active") {
		t.Errorf("the installed system and trivet why say:\n%s", out)
	}
	if power := regexp.MustCompile(`(?m)^power-on +done `); !power.MatchString(out) {
		t.Errorf("the machine was not powered on by its BMC:\n%s", out)
	}
}

// reader is somebody who follows the README.
type reader struct {
	*testing.T
	dir    string
	blocks []string // the commands of the first real installation, as they stand there
}

func newReader(t *testing.T) *reader {
	t.Helper()
	binary := binary(t)
	image := preparedDebian(t)
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## A first real installation\n")
	section, _, _ = strings.Cut(section, "\n## ")
	r := &reader{T: t, dir: t.TempDir()}
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1) {
		r.blocks = append(r.blocks, m[1])
	}
	if len(r.blocks) < 6 || !strings.HasPrefix(r.blocks[0], "make build image\n") {
		t.Fatalf("the README has other commands than this test knows: %q", r.blocks)
	}
	docs, err := filepath.Abs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"bin/trivet": binary, "bin/debian-12.raw.zst": image.Zstd, "docs": docs} {
		link = filepath.Join(r.dir, link)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// run runs a command to its end and gives what it printed.
func (r *reader) run(program string, args ...string) string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// start starts what runs in a terminal of its own, until the test's end. It is ended as Ctrl-C does, and must obey.
func (r *reader) start(name, command string) {
	r.Helper()
	args := strings.Fields(command)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = r.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Minute
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			r.Errorf("%s ended with %v", name, err)
		}
		if r.Failed() {
			r.Logf("%s said:\n%s", name, tail(out.Bytes(), 8000))
		}
	})
}

func (r *reader) waitFor(file string) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(r.dir, file)); err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("%s did not come", file)
		}
	}
}
