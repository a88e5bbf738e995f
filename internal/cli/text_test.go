package cli

import "testing"

func TestPlainText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"kind: Büro\n":             "",
		"\xef\xbb\xbfkind: Site\n": "", // as editors of Windows begin a file
		"":                         "",
		"a\nb\xfcro\n":             "f:2:2: the byte 0xfc is no UTF-8; save the file as UTF-8",
		"ä\x00":                    "f:1:2: the file is binary, not a text",
		"\xfe\xff\x00k":            "f:1:1: the file is UTF-16; save it as UTF-8",
	} {
		text, err := plainText("f", []byte(in))
		if got := errText(err); got != want || err == nil && len(text) > 0 && text[0] == 0xef {
			t.Errorf("%q: %q, %s; want %s", in, text, got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
