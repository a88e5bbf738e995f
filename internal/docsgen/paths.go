package docsgen

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// tree is the repository as far as pages refer to it.
type tree struct {
	files []string          // below its root
	tests map[string]string // the test, benchmark and fuzz functions of a directory: "|TestA|TestB|"
}

var (
	inCode    = regexp.MustCompile("`([^`\n]+)`")
	linkTo    = regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	fileLike  = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)
	bareNames = []string{".go", ".md"} // the ends of file names that are looked up without their directory
)

// wrong returns what a page names that the repository does not have.
func (r *tree) wrong(page, content string) (missing []string) {
	for _, m := range linkTo.FindAllStringSubmatch(content, -1) {
		if to := path.Join(path.Dir(page), m[1]); !r.has(to) {
			missing = append(missing, "the link to "+to)
		}
	}
	for _, m := range inCode.FindAllStringSubmatch(content, -1) {
		if command, ok := strings.CutPrefix(m[1], "go test "); ok {
			missing = append(missing, r.wrongTests(command)...)
			continue
		}
		for _, name := range alternatives(m[1]) {
			if r.isPath(name) && !r.has(name) {
				missing = append(missing, name)
			}
		}
	}
	return missing
}

// isPath reports whether a text can only be meant as a path of the repository: it begins with one of its directories,
// or it is a file name by its end.
func (r *tree) isPath(name string) bool {
	if !fileLike.MatchString(name) {
		return false
	}
	top, _, below := strings.Cut(name, "/")
	directory := func(f string) bool { return strings.HasPrefix(f, top+"/") }
	return below && slices.ContainsFunc(r.files, directory) ||
		slices.Contains(bareNames, path.Ext(name)) && strings.Trim(name, "*.") != path.Ext(name)[1:]
}

// has finds a file or directory by its path, from the root or from any directory: "rank.go" is found as
// internal/reconcile/rank.go.
func (r *tree) has(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "/..."), "/")
	depth := strings.Count(name, "/") + 1
	return slices.ContainsFunc(r.files, func(f string) bool {
		parts := strings.Split(f, "/")
		for from := range parts {
			to := from + depth
			if to > len(parts) {
				return false
			}
			if ok, _ := path.Match(name, strings.Join(parts[from:to], "/")); ok && (from == 0 || to == len(parts)) {
				return true
			}
		}
		return false
	})
}

// alternatives writes "spec_{a,b}.go" out as spec_a.go and spec_b.go.
func alternatives(name string) []string {
	before, rest, begins := strings.Cut(name, "{")
	inner, after, ends := strings.Cut(rest, "}")
	if !begins || !ends {
		return []string{name}
	}
	var all []string
	for part := range strings.SplitSeq(inner, ",") {
		all = append(all, before+part+after)
	}
	return all
}

// wrongTests returns the directories of a go test command that are not there, and the tests that are in none of them.
func (r *tree) wrongTests(command string) (missing []string) {
	fields := strings.Fields(command)
	var names, there string
	for i, f := range fields {
		switch dir, isDir := strings.CutPrefix(f, "./"); {
		case isDir && dir != "...":
			dir = strings.TrimSuffix(dir, "/...")
			if !r.has(dir) {
				missing = append(missing, f)
			}
			there += r.tests[dir]
		case f == ".":
			there += r.tests[f]
		case i > 0 && (fields[i-1] == "-run" || fields[i-1] == "-bench"):
			names = strings.Trim(f, "'")
		}
	}
	for _, name := range split(names) {
		want := regexp.MustCompile(`\|[A-Za-z0-9_]*` + name)
		if strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "^") {
			want = regexp.MustCompile(`\|` + strings.TrimPrefix(name, "^"))
		}
		if name != "" && !want.MatchString(there) {
			missing = append(missing, "the test "+name+" of: go test "+command)
		}
	}
	return missing
}

// split writes a pattern of tests out: "TestJoin(Where|At)|TestB/sub" is TestJoinWhere, TestJoinAt, TestB.
func split(pattern string) (names []string) {
	pattern = strings.ReplaceAll(pattern, `\|`, "|")
	if before, rest, ok := strings.Cut(pattern, "("); ok {
		inner, after, _ := strings.Cut(rest, ")")
		for part := range strings.SplitSeq(inner, "|") {
			names = append(names, split(before+part+after)...)
		}
		return names
	}
	for part := range strings.SplitSeq(pattern, "|") {
		name, _, _ := strings.Cut(part, "/")
		names = append(names, strings.Trim(name, "$"))
	}
	return names
}
