package docsgen

import (
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reference"
)

// records writes the page of all kinds of record.
func records(src *source, examples []*example) string {
	var b strings.Builder
	b.WriteString("# Records\n\nEvery record of the store: YAML for people, JSON on the wire. " +
		"`spec` is written by people, `status` by\nTrivet. A kind that is read-only is written by Trivet alone. The " +
		"roles are the lowest that may read or write.\n\n")
	b.WriteString("| Kind | In commands and URLs | Short | Scope | Read by | Written by |\n|---|---|---|---|---|---|\n")
	for _, k := range trivet.Kinds {
		fmt.Fprintf(&b, "| [%s](#%s) | `%s` | %s | %s | %s | %s |\n", k.Kind, strings.ToLower(string(k.Kind)), k.Plural,
			code(k.Short), k.Scope, k.Reader, writer(k))
	}
	b.WriteString("\nTypes: `duration` is written `90s` or `1h30m`, `size` `400GB` or `1TiB`; `time` is RFC 3339;\n" +
		"`list of X` and `map of X` are JSON arrays and objects; `a[].b` is a field of each element of the list `a`, " +
		"`a.*.b` of each value of the map `a`.\n\n## Fields of every record\n\n" +
		src.withBounds(text(src.types["Meta"])) + "\n\n")
	doc := document(src)
	b.WriteString(table(rows("", doc.Meta)))
	for _, k := range doc.Kinds {
		below := ""
		for _, part := range k.Fields {
			below += rows(part.Name+".", part.Fields)
		}
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n%s%s", k.Name, escape(k.Description), exampleLinks(filesOf(examples, k.Name)),
			table(below))
	}
	b.WriteString(bootSteps(src))
	return b.String()
}

// exampleLinks links to example files.
func exampleLinks(files []string) string {
	var links []string
	for _, f := range files {
		links = append(links, fmt.Sprintf("[%s](../examples/%s)", f, f))
	}
	if len(links) == 0 {
		return ""
	}
	return "Examples: " + strings.Join(links, ", ") + ".\n\n"
}

// writer is the lowest role that writes a kind's records.
func writer(k trivet.KindInfo) string {
	if k.ReadOnly {
		return "Trivet (read-only)"
	}
	return string(k.Writer)
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func table(rows string) string {
	if rows == "" {
		return ""
	}
	return "| Field | Type | Description |\n|---|---|---|\n" + rows
}

// rows has a row for each field, and for what is below it.
func rows(path string, fields []reference.Field) (all string) {
	for _, f := range fields {
		all += fmt.Sprintf("| `%s%s` | %s | %s |\n", path, f.Name, typeCell(f), cell(f))
		all += rows(path+f.Name+marks(f.Type)+".", f.Fields)
	}
	return all
}

// typeCell is a field's type, with its default.
func typeCell(f reference.Field) string {
	if f.Default == "" {
		return f.Type
	}
	return f.Type + ", default " + code(f.Default)
}

// cell is a field's description, and the values of its Go type. Others are in its comment already.
func cell(f reference.Field) string {
	parts := []string{escape(f.Description)}
	for _, v := range f.Values {
		text := fmt.Sprintf("`%q`", v.Value)
		if v.Description != "" {
			text += ": " + escape(v.Description)
		}
		parts = append(parts, text)
	}
	return strings.TrimSpace(strings.Join(parts, "<br>"))
}

// marks is how a path says that a field of a type has many elements.
func marks(typeName string) string {
	if of, ok := strings.CutPrefix(typeName, "list of "); ok {
		return "[]" + marks(of)
	}
	if of, ok := strings.CutPrefix(typeName, "map of "); ok {
		return ".*" + marks(of)
	}
	return ""
}
