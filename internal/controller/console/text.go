package console

import (
	"regexp"
	"strings"
	"unicode"
)

// Bounds of the last lines.
const (
	maxLines     = 20
	maxLineBytes = 200
)

// sequences are control sequences of terminals (ECMA-48): colors, positions, titles.
var sequences = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[ -/]*[0-~])")

// lastLines returns the last lines of a console that are not empty, without control characters.
func lastLines(text []byte) string {
	plain := sequences.ReplaceAllString(strings.ToValidUTF8(string(text), "?"), "")
	var lines []string
	for line := range strings.FieldsFuncSeq(plain, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.Map(func(r rune) rune {
			if unicode.IsPrint(r) {
				return r
			}
			return ' '
		}, line)
		if line = strings.TrimRight(line, " "); line != "" {
			lines = append(lines, strings.ToValidUTF8(line[:min(len(line), maxLineBytes)], ""))
		}
	}
	return strings.Join(lines[max(0, len(lines)-maxLines):], "\n")
}
