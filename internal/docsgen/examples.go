package docsgen

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet/internal/reference"
)

// examplesDir has the files that examples are cut from, below the root of the repository.
const examplesDir = "docs/examples"

// maxExample bounds the lines of an example.
const maxExample = 20

// example is a record of the example files.
type example struct {
	file  string // below examplesDir
	kind  string
	lines []string
	parts []*part // the fields at its top
}

// readExamples returns the records of all example files, in order of the names of the files.
func readExamples(dir string) (all []*example, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		for text := range strings.SplitSeq(string(content), "\n---\n") {
			e, err := parseExample(text)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			e.file = filepath.ToSlash(rel)
			all = append(all, e)
		}
		return nil
	})
	return all, err
}

// cutter cuts the examples of all paths, the shortest one of each.
type cutter struct {
	actions []reference.Field
	found   map[string]fragment // by path: "machine.spec.bmc", "action.image"
}

// fragment is a part of an example: what has a path, in all that is around it. It is a record of YAML by itself.
type fragment struct {
	lines  []string
	indent int // of what has the path
}

// cutExamples returns an example for each path that one of the records has.
func cutExamples(doc reference.Document, all []*example) map[string]string {
	c := cutter{actions: reference.Actions().Fields, found: map[string]fragment{}}
	for _, e := range all {
		i := slices.IndexFunc(doc.Kinds, func(k reference.Field) bool { return k.Name == e.kind })
		if i < 0 {
			continue
		}
		path := strings.ToLower(e.kind)
		c.keep(path, fragment{lines: e.lines[e.parts[0].line:]})
		c.fields(e, path, slices.Concat(doc.Meta, doc.Kinds[i].Fields), e.parts, nil)
	}
	texts := map[string]string{}
	for path, f := range c.found {
		texts[path] = f.text()
	}
	return texts
}

// keep keeps a fragment for a path, unless a shorter one is known.
func (c *cutter) keep(path string, f fragment) {
	size := func(f fragment) int { return len(strings.Join(f.lines, "\n")) }
	known, ok := c.found[path]
	if !ok || cmp.Or(cmp.Compare(len(f.lines), len(known.lines)), cmp.Compare(size(f), size(known))) < 0 {
		c.found[path] = f
	}
}

// A step leads to a part: it is one of several beside each other. Of a list or a map they have no fields.
type step struct {
	to     *part
	beside []*part
	fields []reference.Field
}

// fields cuts the fragments for the fields of an object, and for what is below them.
func (c *cutter) fields(e *example, path string, fields []reference.Field, parts []*part, above []step) {
	for _, p := range parts {
		i := slices.IndexFunc(fields, func(f reference.Field) bool { return f.Name == p.key })
		if i < 0 || len(above) == 0 && fields[i].Required { // what each record has is no example
			continue
		}
		f, at := fields[i], path+"."+p.key
		steps := append(slices.Clone(above), step{p, parts, fields})
		c.keep(at, e.cut(steps))
		switch {
		case p.isList || strings.HasPrefix(f.Type, "map of "):
			for _, one := range p.parts {
				c.element(e, at, f, one, append(slices.Clone(steps), step{to: one, beside: p.parts}))
			}
		default:
			c.fields(e, at, f.Fields, p.parts, steps)
		}
	}
}

// actionsPath is where templates have their actions.
const actionsPath = "template.spec.actions"

// element cuts the fragments for what is below an element of a list or a map.
func (c *cutter) element(e *example, path string, f reference.Field, one *part, steps []step) {
	c.fields(e, path, f.Fields, one.parts, steps)
	use := slices.IndexFunc(c.actions, func(a reference.Field) bool { return a.Name == one.text("use") })
	if path != actionsPath || use < 0 {
		return
	}
	action := c.actions[use]
	at := reference.ActionTopic + "." + action.Name
	c.keep(at, e.cut(steps))
	if with := one.part("with"); with != nil {
		c.fields(e, at, action.Fields, with.parts, append(steps, step{with, one.parts, f.Fields}))
	}
}

// cut returns the last part that steps lead to, in the lines that lead to it, with what is required beside these.
func (e *example) cut(steps []step) fragment {
	for i, s := range steps {
		if s.to.flow { // it has no lines of its own
			steps = steps[:i]
			break
		}
	}
	keep := map[int]bool{}
	whole := func(p *part, from int) {
		for line := from; line <= p.last; line++ {
			keep[line] = true
		}
	}
	for i, s := range steps {
		keep[s.to.line] = true
		for _, p := range s.beside {
			required := slices.ContainsFunc(s.fields, func(f reference.Field) bool { return f.Required && f.Name == p.key })
			beginsElement := i > 0 && p.line == steps[i-1].to.line && p != s.to
			if beginsElement || required && p.line == p.last {
				whole(p, p.line)
			}
		}
	}
	target := steps[len(steps)-1].to
	whole(target, target.first)
	f := fragment{indent: target.indent}
	for _, line := range slices.Sorted(maps.Keys(keep)) {
		f.lines = append(f.lines, e.lines[line])
	}
	return f
}

// text returns the lines of a fragment, as many as there may be. Where some are left out a comment is the last one.
func (f fragment) text() string {
	if len(f.lines) <= maxExample {
		return strings.Join(f.lines, "\n") + "\n"
	}
	end := maxExample - 1
	for n := end; n > maxExample/2; n-- {
		if strings.HasPrefix(strings.TrimLeft(f.lines[n], " "), "- ") { // between elements
			end = n
			break
		}
	}
	for ; ; end-- {
		last := f.lines[end-1]
		text := strings.Join(f.lines[:end], "\n") + "\n" + strings.Repeat(" ", f.indent) + "# ...\n"
		if yaml.Unmarshal([]byte(text), new(any)) == nil && !strings.HasSuffix(last, ":") && !strings.HasSuffix(last, "|") {
			return text
		}
	}
}

// filesOf returns the example files that have a record of a kind.
func filesOf(all []*example, kind string) (files []string) {
	for _, e := range all {
		if e.kind == kind && !slices.Contains(files, e.file) {
			files = append(files, e.file)
		}
	}
	return files
}
