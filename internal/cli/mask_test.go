package cli

import "regexp"

var masks = []struct {
	form *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?`), "TIME"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s)\b`), "DURATION"},
	{regexp.MustCompile(`uid: \S+`), "uid: UID"},
	{regexp.MustCompile(`revision: \d+`), "revision: N"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HEAD"},
	{regexp.MustCompile(`(?m)^.*: attempt \d+/\d+, deadline .*\n`), ""},
}

// maskText replaces what differs between runs with placeholders.
func maskText(s string) string {
	for _, m := range masks {
		s = m.form.ReplaceAllString(s, m.with)
	}
	return s
}
