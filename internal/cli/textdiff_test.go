package cli

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDiffText(t *testing.T) {
	for _, tc := range []struct{ before, after, want string }{
		{"", "", ""},
		{"a\nb\n", "a\nb\n", ""},
		{"", "a\n", "+ a\n"},
		{"a\n", "", "- a\n"},
		{"a\nb\nc\n", "a\nx\nc\n", "  a\n- b\n+ x\n  c\n"},
		{"0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\nx\n2\n3\n4\n5\n6\n7\n8\n9\ny\n",
			"  0\n- 1\n+ x\n  2\n  3\n  4\n...\n  7\n  8\n  9\n+ y\n"},
	} {
		if got := diffText(tc.before, tc.after); got != tc.want {
			t.Errorf("%q and %q: got\n%s\nwant\n%s", tc.before, tc.after, got, tc.want)
		}
	}
}

// The lines without + are the old text, those without - the new one.
func TestDiffLinesHaveBothTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 0, 12)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		var before, after []string
		for _, l := range diffLines(a, b) {
			if l.mark != '+' {
				before = append(before, l.text)
			}
			if l.mark != '-' {
				after = append(after, l.text)
			}
		}
		if strings.Join(before, "\n") != strings.Join(a, "\n") || strings.Join(after, "\n") != strings.Join(b, "\n") {
			t.Errorf("%q and %q became %q and %q", a, b, before, after)
		}
	})
}
