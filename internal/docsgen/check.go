package docsgen

import (
	"os"
	"strings"
	"testing"
)

const generated = "<!-- Written by `make docs` from the code. Do not edit. -->\n\n"

// Check compares a page with what is committed. With UPDATE set it writes the page instead.
func Check(t testing.TB, path, page string) {
	t.Helper()
	title, rest, _ := strings.Cut(page, "\n\n")
	CheckFile(t, path, title+"\n\n"+generated+rest)
}

// CheckFile is Check for a file that is no page.
func CheckFile(t testing.TB, path, content string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	committed, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: make docs", err)
	}
	if line, was, is := difference(string(committed), content); line > 0 {
		t.Errorf("%s:%d does not match the code; update it with: make docs\n committed: %s\n generated: %s",
			path, line, was, is)
	}
}

// difference returns the first line in which two texts differ, 0 if none does.
func difference(a, b string) (line int, inA, inB string) {
	if a == b {
		return 0, "", ""
	}
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return i + 1, as[i], bs[i]
		}
	}
	return min(len(as), len(bs)) + 1, "", ""
}
