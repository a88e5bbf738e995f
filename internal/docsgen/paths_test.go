package docsgen

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every file, directory and test that a page names exists.
func TestPagesNameWhatIsThere(t *testing.T) {
	r := readTree(t)
	for _, f := range r.files {
		if path.Ext(f) != ".md" {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range r.wrong(f, string(content)) {
			t.Errorf("%s names %s, which is not in the repository", f, m)
		}
	}
}

func readTree(t *testing.T) *tree {
	t.Helper()
	r := &tree{tests: map[string]string{}}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w+)\(`)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, name)
		rel = filepath.ToSlash(rel)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (rel == ".git" || rel == "bin"):
			return fs.SkipDir
		case d.IsDir():
			return nil
		}
		r.files = append(r.files, rel)
		if !strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(name)
		for _, m := range function.FindAllStringSubmatch(string(content), -1) {
			r.tests[path.Dir(rel)] += "|" + m[1]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPathsOfPages(t *testing.T) {
	r := &tree{
		files: []string{"docs/heads.md", "internal/a/rank.go", "internal/a/rank_test.go", "README.md"},
		tests: map[string]string{"internal/a": "|TestJoinAt|TestJoinWhere|FuzzIt"},
	}
	for text, want := range map[string][]string{
		"`internal/a`, `internal/a/rank.go`, `rank.go`, `a/*.go`, `rank{,_test}.go`, " +
			"[x](heads.md), [y](../README.md#z)": nil,
		"`internal/b/rank.go`": {"internal/b/rank.go"},
		"`turn.go`":            {"turn.go"},
		"[x](other.md)":        {"the link to docs/other.md"},
		"`/etc/x.yaml`, `admin.yaml --x`, `a.b`, `.md`, `*.md`":                 nil,
		"`go test -run 'TestJoin(Where\\|At)' ./internal/a`":                    nil,
		"`go test -run FuzzIt ./internal/a`, `go test -run Where ./internal/a`": nil,
		"`go test -run TestNone ./internal/a`": {"the test TestNone of: go test " +
			"-run TestNone ./internal/a"},
		"`go test ./internal/b`": {"./internal/b"},
	} {
		if got := r.wrong("docs/page.md", text); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
