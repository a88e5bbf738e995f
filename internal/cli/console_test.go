package cli

import (
	"fmt"
	"strings"
	"testing"
)

// Commands are found at the beginning of lines only, however the text is cut, and all else is typed as it is.
func TestConsoleEscapes(t *testing.T) {
	for in, want := range map[string]string{
		"ls\r~.":       `"ls\r" .`,
		"~.":           `.`,
		"a~.":          `"a~."`,
		"~~.\r":        `"~.\r"`,
		"~x~.":         `"~x~."`,
		"~\r~B~?uname": `"~\r" B ? "uname"`,
		"\n~~~.\n~.":   `"\n~~.\n" .`,
	} {
		for cut := range len(in) + 1 {
			e := newEscapes()
			var got []string
			text := ""
			flush := func() {
				if text != "" {
					got, text = append(got, fmt.Sprintf("%q", text)), ""
				}
			}
			for _, p := range append(e.split([]byte(in[:cut])), e.split([]byte(in[cut:]))...) {
				if p.command != 0 {
					flush()
					got = append(got, string(p.command))
				}
				text += string(p.text)
			}
			flush()
			if s := strings.Join(got, " "); s != want {
				t.Errorf("%q, cut at %d: %s; want %s", in, cut, s, want)
			}
		}
	}
}
