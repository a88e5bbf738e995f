package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

const pageHead = `# Soak runs

` + "`make soak`" + ` runs every test there is before a release, and adds its outcome here: see [testing](testing.md).
`

// record adds the outcome to a page, the newest first.
func (r *run) record(page string) error {
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, runs, _ := bytes.Cut(old, []byte("\n## "))
	if len(runs) > 0 {
		runs = append([]byte("\n## "), runs...)
	}
	return os.WriteFile(page, append([]byte(pageHead+r.section()), runs...), 0o644)
}

// section is the outcome as a part of the page.
func (r *run) section() string {
	outcome := "all passed"
	if r.failed {
		outcome = "failed"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s, %s: %s\n\n", time.Now().UTC().Format("2006-01-02 15:04"), r.version, outcome)
	fmt.Fprintf(&b, "%s on %s, in %s.\n\n", runtime.Version(), machine(), time.Since(r.began).Round(time.Second))
	b.WriteString("| Package | Tests | Time | Outcome |\n|---|---|---|---|\n")
	for _, p := range r.packages {
		outcome := p.outcome
		if len(p.failed) > 0 {
			outcome += ": " + strings.Join(p.failed, ", ")
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", p.name, p.tests, p.took.Round(100*time.Millisecond), outcome)
	}
	return b.String()
}

// version returns the version under test.
func version() string {
	out, err := exec.Command("git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "an unknown version"
	}
	return strings.TrimSpace(string(out))
}

// machine describes the computer.
func machine() string {
	model := "an unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%d cores of %s", runtime.NumCPU(), model)
}
