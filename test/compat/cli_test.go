package compat_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What operators do, with the commands of either version at a head of either.
func TestCommands(t *testing.T) {
	versions := map[string]string{"old": oldTrivet, "new": newTrivet}
	for at, program := range versions {
		h := newHead(t)
		h.up(program)
		h.furnish(program)
		for by, command := range versions {
			t.Run(by+" at "+at, func(t *testing.T) { operate(t, h, command, by) })
		}
	}
}

// operate is a day's work. by is whose commands they are.
func operate(t *testing.T, h *head, command, by string) {
	name := by + "-m1"
	do := func(args ...string) string {
		t.Helper()
		out, all, err := h.trivet(command, "", args...)
		if err != nil {
			t.Errorf("%s: %v\n%s", args, err, all)
		}
		return strings.TrimSpace(out)
	}
	h.plugIn(name, false, h)
	says(t, do("get", "machines"), name)
	h.apply(command, "{kind: Template, name: "+by+", spec: {actions: [{name: seed, use: seed}, {name: reboot, use: reboot}]}}")
	says(t, do("provision", by, "--template", by, "--machine", name), "succeeded on machine "+name)
	says(t, do("get", "workflow", by+"-1", "-o", "yaml"), "state: succeeded", "machine: "+name)
	says(t, do("describe", "machine", name), "active")
	says(t, do("why", name), name)
	do("logs", name)
	do("quarantine", name, "--reason", "a test")
	do("delete", "provision", by)
	do("accept", name)
	says(t, do("get", "machine", name), "available")

	file := filepath.Join(t.TempDir(), "image.raw")
	if err := os.WriteFile(file, content(4), 0o600); err != nil {
		t.Fatal(err)
	}
	do("image", "import", file, "--name", by)
	says(t, do("image", "list"), by, "system")
	do("delete", "image", by)

	token := do("token", "issue", "robot")
	own := head{T: t, dir: t.TempDir(), host: h.host}
	if _, all, err := own.trivet(command, token, "login", "--endpoint", h.api(), "--trust", h.credential().Trust); err != nil {
		t.Errorf("login: %v\n%s", err, all)
	}
	says(t, own.must(command, "version"), "head head0: ")
	do("token", "revoke", strings.Split(token, "_")[1])
	if _, all, err := own.trivet(command, "", "get", "machines"); err == nil {
		t.Errorf("a revoked token is good:\n%s", all)
	}
}

// What a head of version 0.1.0 has not got is told as that. Nobody joins it.
func TestNoOtherHeads(t *testing.T) {
	h := newHead(t)
	h.up(oldTrivet)
	for _, args := range [][]string{{"head", "list"}, {"head", "token"}, {"head", "remove", "head0"}, {"head", "replace", "head0"}} {
		_, all, err := h.trivet(newTrivet, "", args...)
		if err == nil {
			t.Errorf("%s: a head of version 0.1.0 did it:\n%s", args, all)
		}
		says(t, all, "head0", "of version v0.1.0", "hint:", "upgrade")
	}

	h.stop()
	h.up(newTrivet)
	token := h.must(newTrivet, "head", "token")
	h.stop()
	h.up(oldTrivet)
	n := newHead(t)
	n.start(newTrivet, "--join", h.api(), "--token", token)
	n.refused("does not let heads join", "version 0.1", "upgrade it first")
	h.stop()
	h.up(newTrivet)
	n.up(newTrivet, "--join", h.api(), "--token", token)
	h.counts("head1")
}
