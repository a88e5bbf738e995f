package docsgen

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/reference"
)

// actions writes the page of all built-in actions. examples are those of paths.
func actions(examples map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Actions\n\nThe built-in actions of a template, in the order of an "+
		"ordinary install. `use` names one,\n`with` has its arguments: they are checked when the template is "+
		"applied. Texts may hold Go templates over\n`.Machine`, `.Provision`, `.Network` and `.Params`. Every action "+
		"also has `name`, `timeout` (default %s), `retries` and `backoff`: see\n[Template](records.md#template).\n\n",
		short(trivet.DefaultActionTimeout))
	for _, a := range actionspec.Actions() {
		fmt.Fprintf(&b, "- [`%s`](#%s)\n", a.Name, a.Name)
	}
	for _, a := range actionspec.Actions() {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", a.Name, text(a.Description))
		if len(a.Args) == 0 {
			b.WriteString("\nIt has no arguments.\n")
		} else {
			b.WriteString("\n| Argument | Type | Default | Description |\n|---|---|---|---|\n")
			arguments(&b, "", a.Args)
		}
		if text := examples[reference.ActionTopic+"."+a.Name]; text != "" {
			fmt.Fprintf(&b, "\n```yaml\n%s```\n", text)
		}
	}
	b.WriteString(hints())
	return b.String()
}

// pathOrHints is the type of arguments that select a disk.
const pathOrHints = "path or object"

// hints describes once the object by which actions and machines select a disk.
func hints() string {
	var b strings.Builder
	for _, a := range actionspec.Actions() {
		for _, arg := range a.Args {
			if arg.Type == pathOrHints {
				b.WriteString("\n## Disk hints\n\nAll hints must match, and match exactly one disk. " +
					"Otherwise the action fails with the list of disks.\n\n" +
					"| Hint | Type | Default | Description |\n|---|---|---|---|\n")
				arguments(&b, "", arg.Args)
				return b.String()
			}
		}
	}
	return ""
}

func arguments(b *strings.Builder, path string, args []actionspec.Arg) {
	for _, a := range args {
		value, kind := code(a.Default), a.Type
		if a.Required {
			value = cmp.Or(value, "required")
		}
		if a.Type == pathOrHints {
			kind, a.Args = "path or [hints](#disk-hints)", nil
		}
		fmt.Fprintf(b, "| `%s%s` | %s | %s | %s |\n", path, a.Name, kind, value, text(a.Description))
		mark := "."
		if strings.HasPrefix(a.Type, "list") {
			mark = "[]."
		}
		arguments(b, path+a.Name+mark, a.Args)
	}
}
