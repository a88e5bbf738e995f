package guide_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet/internal/testhead"
)

const example = "A page.\n\n`a.yaml`:\n\n```yaml\nkind: A\n```\n\n```sh\none\ntwo\n```\n\n" +
	"<!-- test: a disk fails -->\n\n```console\n$ three \\\n    --flag\nout\n...\nalice$ four\n$ five\n$ echo $?\n1\n```\n"

func TestParse(t *testing.T) {
	got, err := parse(example)
	want := []step{
		{line: 6, file: "a.yaml", content: "kind: A\n"},
		{line: 10, command: "one\ntwo"},
		{line: 14, event: "a disk fails"},
		{line: 17, command: "three \\\n    --flag", want: []string{"out", "..."}},
		{line: 21, person: "alice", command: "four", want: []string{}},
		{line: 22, command: "five", want: []string{}, any: true},
		{line: 23, command: "echo $?", want: []string{"1"}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(step{})); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	for _, page := range []string{"```sh\nx\n", "```console\nout\n```\n", "```yaml\nkind: A\n```\n", "```\nx\n```\n"} {
		if got, err := parse(page); err == nil {
			t.Errorf("%q: %+v", page, got)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		want   []string
		output string
		is     bool
	}{
		{nil, "anything\n", true},
		{[]string{}, "", true},
		{[]string{}, "something\n", false},
		{[]string{"20 of 20 in 1m2s"}, "20 of 20 in 800ms\n", true},
		{[]string{"20 of 20 in 1m2s"}, "19 of 20 in 800ms\n", false},
		{[]string{"20 of 20 in 1m2s"}, "20 of 20 in short\n", false},
		{[]string{"at 2026-11-27 10:00:00"}, "at 2025-01-02 03:04:05\n", true},
		{[]string{"a  b"}, "a      b   \n", true},
		{[]string{"a b"}, "ab\n", false},
		{[]string{"a (b) ... d"}, "a (b) c c d\n", true},
		{[]string{"a", "...", "d"}, "a\nb\nc\nd\n", true},
		{[]string{"a", "...", "d"}, "a\nd\n", true},
		{[]string{"a", "...", "d"}, "a\nd\ne\n", false},
		{[]string{"a", "..."}, "a\n", true},
		{[]string{"a", "b"}, "a\n", false},
	} {
		if got := matches(c.want, c.output); got != c.is {
			t.Errorf("%q, %q: %t", c.want, c.output, got)
		}
	}
}

func TestComplete(t *testing.T) {
	const printed = "log in: trivet login --trust sha256:aa\nagain sha256:bb\nrelease-m1-7 is done\n"
	for command, want := range map[string]string{
		"login --trust sha256:... <token": "login --trust sha256:bb <token",
		"logs release-m1-...":             "logs release-m1-7",
		"get x...":                        "get x...",
	} {
		if got := complete(command, printed); got != want {
			t.Errorf("%s: %s", command, got)
		}
	}
}

// The commands in the sentences of the guide, which are not executed, exist with their flags.
func TestCommandsInSentences(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile("`(trivet [^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		t.Error("there is none")
	}
	for _, m := range all {
		args := append(strings.Fields(m[1])[1:], "--help")
		out, err := exec.Command(testhead.Program(t), args...).CombinedOutput()
		if err != nil || strings.Contains(string(out), "Machine commands:") {
			t.Errorf("%s: %v\n%s", m[1], err, out)
		}
	}
}
