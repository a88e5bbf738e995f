package boot

import (
	"slices"
	"strings"
)

// commandLine returns the installer's kernel arguments. The last one of a name is used, so that records cannot
// replace Trivet's own.
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

// args returns the arguments of records.
func (f *ScriptFacts) args() []string {
	if f.Platform == nil {
		return nil
	}
	return append(slices.Clone(f.Platform.Spec.Args), f.Args...)
}

// isWord reports whether a text is one literal word both to iPXE and to the kernel. iPXE splits lines at blanks,
// expands ${...}, joins a line that ends with a backslash to the next, has the operators "||" and "&&" and comments
// that begin with "#", and has no quotes. The kernel has double quotes.
func isWord(s string) bool {
	if s == "" || s == "||" || s == "&&" || s[0] == '#' || strings.Contains(s, "${") {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' })
}

// maxEcho bounds a line on the console, in bytes.
const maxEcho = 240

// plain returns text that iPXE prints as it is: characters that are special to iPXE become question marks.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' || strings.ContainsRune(`$\|&#`, r) {
			return '?'
		}
		return r
	}, text)
	return text[:min(len(text), maxEcho)]
}
