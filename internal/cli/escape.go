package cli

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Machines, their neighbours and other people wrote much of what commands print: an inventory, a cause, a log. Such
// text must not control the terminal, so that all output of all commands is escaped (escaper), and text in a cell or
// line also by itself (printable). What a command draws by control sequences it writes past that.

// escaper escapes what is written to a writer, but for newlines and tabs.
type escaper struct{ to io.Writer }

func (e escaper) Write(b []byte) (int, error) {
	text := escape(string(b), func(r rune) bool { return r == '\n' || r == '\t' })
	if _, err := io.WriteString(e.to, text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// printable escapes all that could end a cell or line.
func printable(s string) string { return escape(s, func(rune) bool { return false }) }

// escape replaces control characters, those that change the direction of text, and bytes that are not UTF-8 by
// escapes that JSON and YAML understand.
func escape(s string, keep func(rune) bool) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return isControl(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !isControl(r) || keep(r):
			b.WriteRune(r)
		default:
			b.WriteString(escapeOf(r))
		}
	}
	return b.String()
}

func escapeOf(r rune) string {
	switch r {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	return fmt.Sprintf(`\u%04x`, r)
}

func isControl(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}
