package ansible_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// runner runs the inventory script and Ansible.
type runner struct {
	*testing.T
	env []string // of all commands, in addition to that of the test
}

// result is what a command has printed, and its exit status.
type result struct {
	stdout, stderr string
	status         int
}

// script returns the path of the inventory script.
func (r *runner) script() string {
	r.Helper()
	path, err := filepath.Abs(root + "/contrib/ansible/trivet.py")
	if err != nil {
		r.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o111 != 0o111 {
		r.Fatalf("the script cannot be executed: %v, %v", info, err)
	}
	return path
}

// dir returns a directory for commands: with a home, and with a configuration of Ansible that has its defaults.
func (r *runner) dir() string {
	r.Helper()
	dir := r.TempDir()
	r.write(filepath.Join(dir, "ansible.cfg"), "", 0o600)
	if err := os.Mkdir(filepath.Join(dir, "home"), 0o700); err != nil {
		r.Fatal(err)
	}
	return dir
}

// write writes a file, and the directories above it.
func (r *runner) write(path, text string, mode os.FileMode) {
	r.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		r.Fatal(err)
	}
}

// program writes a program of the shell and returns its path.
func (r *runner) program(text string) string {
	r.Helper()
	path := filepath.Join(r.TempDir(), "trivet")
	r.write(path, "#!/bin/sh\n"+text+"\n", 0o700)
	return path
}

// list runs the script with variables of the environment that win.
func (r *runner) list(env ...string) result {
	r.Helper()
	return r.run(r.dir(), env, r.script(), "--list")
}

// run runs a command in a directory of dir.
func (r *runner) run(dir string, env []string, name string, args ...string) result {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), testhead.Timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second // for what it has started
	cmd.Env = slices.Concat(os.Environ(), []string{"HOME=" + filepath.Join(dir, "home"), "LC_ALL=C.UTF-8",
		"ANSIBLE_NOCOLOR=1", "ANSIBLE_CONFIG=" + filepath.Join(dir, "ansible.cfg")}, r.env, env)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		r.Fatalf("%s: %v (apt-get install -y --no-install-recommends ansible-core)", cmd, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// ok fails the test unless a command has succeeded, and returns what it has printed.
func (r *runner) ok(of result) string {
	r.Helper()
	if of.status != 0 {
		r.Fatalf("exit status %d: %s%s", of.status, of.stdout, of.stderr)
	}
	return of.stdout
}

// fails fails the test unless a command has exit status 1, has printed nothing and has these texts in its messages,
// which Ansible breaks into lines.
func (r *runner) fails(of result, texts ...string) {
	r.Helper()
	messages := strings.Join(strings.Fields(of.stderr), " ")
	if of.status != 1 || of.stdout != "" {
		r.Errorf("exit status %d, output %q; want 1 and none: %s", of.status, of.stdout, of.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(messages, text) {
			r.Errorf("%q is not in the messages: %s", text, messages)
		}
	}
}

// inventory is an inventory in the form that Ansible reads and prints.
type inventory struct {
	vars   map[string]map[string]any // by host
	groups map[string][]string       // hosts by group
}

// parse parses an inventory.
func (r *runner) parse(text string) inventory {
	r.Helper()
	var raw map[string]json.RawMessage
	var meta struct{ HostVars map[string]map[string]any }
	err := json.Unmarshal([]byte(text), &raw)
	if err := errors.Join(err, json.Unmarshal(raw["_meta"], &meta)); err != nil {
		r.Fatalf("%v: %s", err, text)
	}
	i := inventory{meta.HostVars, map[string][]string{}}
	for name, data := range raw {
		var group struct{ Hosts []string }
		if err := json.Unmarshal(data, &group); err != nil {
			r.Fatalf("%s: %v", name, err)
		}
		if name != "_meta" && name != "all" {
			i.groups[name] = group.Hosts
		}
	}
	return i
}

// plain returns a value without the marks of texts that Ansible does not evaluate, and how many of the texts have none.
func plain(v any) (without any, unmarked int) {
	switch v := v.(type) {
	case string:
		return v, 1
	case map[string]any:
		if text, ok := v["__ansible_unsafe"].(string); ok && len(v) == 1 {
			return text, 0
		}
		out := map[string]any{}
		for key, of := range v {
			p, n := plain(of)
			out[key], unmarked = p, unmarked+n
		}
		return out, unmarked
	case []any:
		out := []any{}
		for _, of := range v {
			p, n := plain(of)
			out, unmarked = append(out, p), unmarked+n
		}
		return out, unmarked
	}
	return v, 0
}
