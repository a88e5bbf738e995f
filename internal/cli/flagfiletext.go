package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// FlagFile returns the text of a file for SetFlags: all flags, each with its help and its default, as comments.
func FlagFile(title string, flags *pflag.FlagSet) string {
	var b strings.Builder
	comment(&b, title)
	known := settings(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if known[f.Name] == nil {
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		b.WriteString("\n")
		comment(&b, usage)
		fmt.Fprintf(&b, "#%s: %s\n", f.Name, defaultText(f))
	})
	return b.String()
}

// defaultText is the default of a flag in YAML.
func defaultText(f *pflag.Flag) string {
	if _, list := f.Value.(pflag.SliceValue); list {
		return "[" + strings.Trim(f.DefValue, "[]") + "]"
	}
	if f.Value.Type() == "string" {
		return fmt.Sprintf("%q", f.DefValue)
	}
	return f.DefValue
}

// comment writes a text as comments of at most 120 columns.
func comment(b *strings.Builder, text string) {
	const width = 120
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
