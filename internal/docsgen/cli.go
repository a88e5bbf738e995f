package docsgen

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CLI writes the page of all commands below root.
func CLI(root *cobra.Command) string {
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	var b strings.Builder
	b.WriteString("# Commands\n\nEvery command with its flags. `trivet COMMAND --help` shows the same.\n\n")
	contents(&b, root, 0)
	command(&b, root)
	return b.String()
}

func contents(b *strings.Builder, c *cobra.Command, depth int) {
	for _, sub := range visible(c) {
		fmt.Fprintf(b, "%s- [`%s`](#%s): %s\n", strings.Repeat("  ", depth), sub.CommandPath(),
			strings.ReplaceAll(sub.CommandPath(), " ", "-"), sub.Short)
		contents(b, sub, depth+1)
	}
}

// visible are the commands below c that help shows. The pages of shell completion are left out: they are cobra's.
func visible(c *cobra.Command) (all []*cobra.Command) {
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && c.Name() != "completion" {
			all = append(all, sub)
		}
	}
	return all
}

func command(b *strings.Builder, c *cobra.Command) {
	c.InitDefaultHelpFlag()
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```\n%s\n```\n", c.CommandPath(), long(c), use(c))
	if len(c.Aliases) > 0 {
		fmt.Fprintf(b, "\nAliases: `%s`.\n", strings.Join(c.Aliases, "`, `"))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindent(c.Example))
	}
	flags(b, c)
	for _, sub := range visible(c) {
		command(b, sub)
	}
}

// use is the usage line. A command that only holds others takes one of them.
func use(c *cobra.Command) string {
	if c.HasSubCommands() && !c.Runnable() {
		return c.CommandPath() + " COMMAND"
	}
	return c.UseLine()
}

func long(c *cobra.Command) string {
	return strings.ReplaceAll(strings.TrimSpace(cmp.Or(c.Long, c.Short+".")), "<", `\<`)
}

func unindent(example string) string {
	lines := strings.Split(strings.Trim(example, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], "  ")
	}
	return strings.Join(lines, "\n")
}

func flags(b *strings.Builder, c *cobra.Command) {
	var rows strings.Builder
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		fmt.Fprintf(&rows, "| %s | %s | %s | %s |\n", name, kind, def(f), text(usage))
	})
	if rows.Len() > 0 {
		b.WriteString("\n| Flag | Value | Default | Description |\n|---|---|---|---|\n" + rows.String())
	}
}

// def is a flag's default; empty where it is the zero value, as in help.
func def(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return ""
	}
	return code(strings.Trim(f.DefValue, "[]"))
}
