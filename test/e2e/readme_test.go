package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// The README's first real installation works as it is written: its commands are read from its text and run in order,
// in a directory that has what the checkout has for them. The machine is powered on by IPMI. As the text suggests, the
// head is killed by kill -9 while the image is written, and started again: no action is done again.
func TestREADME(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	build, lab, head, shell := r.blocks[0], r.blocks[1], r.blocks[2], r.blocks[3]
	setUp, install, inspect := r.blocks[4], r.blocks[5], r.blocks[6]

	r.run("bash", "-ec", strings.TrimPrefix(build, "make build image\n"))
	r.start("lab", lab).stopAtEnd()
	r.waitFor("lab/machines.yaml")
	first := r.start("head", head)
	r.waitFor("lab/head0/admin.yaml")
	r.shell = strings.Fields(strings.TrimSpace(shell)) // ends in bash
	r.operate("for i in {1..100}; do bin/trivet get heads && exit; sleep 0.1; done; exit 1")
	t.Log(r.operate(setUp))
	t.Log("the commands can be repeated at any time")
	if again := r.operate(setUp); !strings.Contains(again, "unchanged") {
		t.Errorf("the commands again:\n%s", again)
	}
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		r.await(`"name": *"image",\s*"state": *"running"`, "bin/trivet get workflows web1-1 -o json")
		first.Kill()
		r.start("head", head).stopAtEnd()
	}()
	t.Log(r.operate(install))
	<-restarted
	out := r.operate(inspect)
	t.Log(out)
	if !strings.Contains(out, "\nweb1\n") || !strings.Contains(out, "lab1 is active") {
		t.Errorf("the output of the installed system and of trivet why:\n%s", out)
	}
	for _, step := range []string{"wipe", "image", "seed", "reboot", "first-boot"} {
		if !regexp.MustCompile(`(?m)^` + step + ` +done +1/`).MatchString(out) {
			t.Errorf("%s was not done at its first try:\n%s", step, out)
		}
	}
	if power := regexp.MustCompile(`(?m)^power-on +done `); !power.MatchString(out) {
		t.Errorf("the machine was not powered on by its BMC:\n%s", out)
	}
}

// reader follows the README.
type reader struct {
	*testing.T
	dir    string
	blocks []string // the commands of the first real installation, as they are written there
	shell  []string // the command of the operator's shell
}

func newReader(t *testing.T) *reader {
	t.Helper()
	testhead.RequireRoot(t)
	binary := testhead.Program(t)
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
	if len(r.blocks) != 7 || !strings.HasPrefix(r.blocks[0], "make build image\n") {
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

// run runs a command to its end and returns its output.
func (r *reader) run(program string, args ...string) string {
	r.Helper()
	out, err := r.try(program, args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

func (r *reader) try(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return string(out), err
}

// operate runs commands in the operator's shell.
func (r *reader) operate(commands string) string {
	r.Helper()
	return r.run(r.shell[0], append(slices.Clip(r.shell[1:]), "-ec", commands)...)
}

// await runs a command in the operator's shell until its output matches.
func (r *reader) await(re, command string) {
	match := regexp.MustCompile(re)
	for r.Context().Err() == nil {
		out, err := r.try(r.shell[0], append(slices.Clip(r.shell[1:]), "-ec", command)...)
		if err == nil && match.MatchString(out) {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// terminal is a program that runs in a terminal of its own.
type terminal struct {
	*testhead.Process
	r    *reader
	name string
}

// start starts a program in a terminal of its own. It is killed at the end of the test at the latest.
func (r *reader) start(name, command string) *terminal {
	args := strings.Fields(command)
	cmd := testhead.Command("", args[0], args[1:]...)
	cmd.Dir = r.dir
	p, err := testhead.Start(cmd)
	if err != nil {
		r.Error(err)
		return nil
	}
	r.Cleanup(func() {
		p.Kill()
		if r.Failed() {
			r.Logf("log of %s:\n%s", name, tail([]byte(p.Log.String()), 8000))
		}
	})
	return &terminal{p, r, name}
}

// stopAtEnd ends the program at the end of the test as Ctrl-C does; its exit status must be 0.
func (p *terminal) stopAtEnd() {
	p.r.Cleanup(func() {
		p.Signal(syscall.SIGINT)
		if err := p.Wait(time.Minute); err != nil || p.ExitCode() != 0 {
			p.r.Errorf("%s ended with status %d, %v", p.name, p.ExitCode(), err)
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
