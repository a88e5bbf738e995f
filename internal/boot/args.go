package boot

import (
	"slices"
	"strings"
)

// commandLine is the installer's kernel arguments. The last of a name counts, so records cannot replace Trivet's own.
func (f *ScriptFacts) commandLine() []string {
	args := slices.DeleteFunc(f.args(), func(arg string) bool { return !isWord(arg) })
	if f.Journal != "" && isWord(f.Journal) {
		args = append(args, "trivet.journal="+f.Journal)
	}
	return append(args,
		"initrd=initrd.img",
		"trivet.url="+strings.Join(f.API, ","),
		"trivet.ca="+f.CA,
		"trivet.token="+f.Token,
		"trivet.machine="+f.Machine,
		"BOOTIF=01-"+hyphens(f.MAC))
}

// args are those that come from records.
func (f *ScriptFacts) args() []string {
	if f.Platform == nil {
		return nil
	}
	return append(slices.Clone(f.Platform.Spec.Args), f.Args...)
}

// isWord says whether a text is one word both to iPXE and to the kernel, which stands for itself. iPXE splits lines at
// blanks, replaces ${...}, joins a line that ends with a backslash to the next, knows "||" and "&&", and "#" as the
// beginning of a comment; it has no quotes. The kernel has double quotes.
func isWord(s string) bool {
	if s == "" || s == "||" || s == "&&" || s[0] == '#' || strings.Contains(s, "${") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// maxSaid bounds a line on the console, in bytes.
const maxSaid = 240

// plain is text that iPXE prints as it is: what means something to iPXE becomes a question mark.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`$\|&#`, r) {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), maxSaid)]
}
