package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet/internal/reference"
)

func (a *app) explain() *cobra.Command {
	var recursive bool
	c := &cobra.Command{
		Use:   "explain [PATH]",
		Short: "Describe the fields of records and the arguments of actions",
		Long: "Describe the fields of records and the arguments of actions: their types, which are required, their\n" +
			"defaults, the values that they may have, what they mean, and a short example. A path begins with a\n" +
			"kind, by any of its names, or with action. Without a path, what can be explained is listed. No cluster\n" +
			"is needed. Examples are parts of records, shortened by # ..., from docs/examples.",
		Example: "  trivet explain machine.spec.bmc\n" +
			"  trivet explain action.image\n" +
			"  trivet explain template --recursive\n" +
			"  trivet explain m.status.state -o json",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: completePaths,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.showTopics()
			}
			path, f, err := reference.Lookup(args[0])
			if err != nil {
				return err
			}
			if a.output != "table" {
				return a.showValue(f)
			}
			if recursive {
				return a.printAll(path, f)
			}
			return a.printField(path, f)
		},
	}
	c.Flags().BoolVarP(&recursive, "recursive", "R", false, "list all fields below the path, without descriptions")
	a.outputForms(c, "table", "json", "yaml")
	return c
}

// showTopics lists what can be explained.
func (a *app) showTopics() error {
	topics := reference.Topics()
	if a.output != "table" {
		return a.showValue(topics)
	}
	rows := [][]string{{"PATH", "DESCRIPTION"}}
	for _, f := range topics {
		first, _, _ := strings.Cut(f.Description, ". ")
		rows = append(rows, []string{f.Name, strings.TrimSuffix(first, ".") + "."})
	}
	return align(a.Out, rows)
}

// explainWidth bounds the lines of descriptions.
const explainWidth = 100

// printField prints a field, and one level of what is below it.
func (a *app) printField(path string, f reference.Field) error {
	width := explainWidth
	if w, ok := a.terminal(); ok {
		width = min(width, w)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n", path, traits(f))
	b.WriteString(wrapped(f.Description, "  ", width))
	for _, v := range f.Values {
		b.WriteString(wrapped(valueText(v), "    ", width))
	}
	if len(f.Fields) > 0 {
		b.WriteString("\n")
	}
	for _, below := range f.Fields {
		fmt.Fprintf(&b, "  %s (%s)\n", below.Name, traits(below))
		b.WriteString(wrapped(below.Description, "    ", width))
		b.WriteString(wrapped(oneOf(below.Values), "    ", width))
	}
	if f.Example != "" {
		b.WriteString("\n  Example:\n")
		for line := range strings.Lines(f.Example) {
			b.WriteString("    " + line)
		}
	}
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// printAll prints the names and types of all that is below a field.
func (a *app) printAll(path string, f reference.Field) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)\n", path, traits(f))
	addTree(&b, f.Fields, "  ")
	_, err := io.WriteString(a.Out, b.String())
	return err
}

func addTree(b *strings.Builder, fields []reference.Field, indent string) {
	for _, f := range fields {
		fmt.Fprintf(b, "%s%s (%s)\n", indent, f.Name, traits(f))
		addTree(b, f.Fields, indent+"  ")
	}
}

// traits is a field's type, with whether it is required and its default.
func traits(f reference.Field) string {
	text := f.Type
	if f.Required {
		text += ", required"
	}
	if f.Default != "" {
		text += ", default " + f.Default
	}
	return text
}

func valueText(v reference.Value) string {
	text := v.Value
	if text == "" {
		text = `""`
	}
	if v.Description == "" {
		return text
	}
	return text + ": " + v.Description
}

// oneOf lists values by their names only; nothing where there are none.
func oneOf(values []reference.Value) string {
	var names []string
	for _, v := range values {
		names = append(names, valueText(reference.Value{Value: v.Value}))
	}
	if len(names) == 0 {
		return ""
	}
	return "One of: " + strings.Join(names, ", ")
}

// wrapped breaks a text into indented lines of at most so many characters, where it has spaces.
func wrapped(text, indent string, width int) string {
	var b strings.Builder
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(indent)+len(line)+1+len(word) > width {
			b.WriteString(indent + line + "\n")
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		b.WriteString(indent + line + "\n")
	}
	return b.String()
}

// completePaths completes a path by one more name.
func completePaths(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	dot := strings.LastIndexByte(typed, '.')
	if dot < 0 {
		return complete("", reference.Topics())
	}
	_, f, err := reference.Lookup(typed[:dot])
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return complete(typed[:dot+1], f.Fields)
}

func complete(before string, fields []reference.Field) (all []cobra.Completion, d cobra.ShellCompDirective) {
	d = cobra.ShellCompDirectiveNoFileComp
	for _, f := range fields {
		if len(f.Fields) > 0 {
			d |= cobra.ShellCompDirectiveNoSpace
		}
		all = append(all, before+f.Name)
	}
	return all, d
}
