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

// A file that is named as JSON may be YAML, where it begins as YAML does. The message of one that is not has no line of
// it, which may be all of a secret.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"kind": "Site"}`:       "",
		"":                       "",
		"# a site\nkind: Site\n": "",
		"\n---\nkind: Site\n":    "",
		`{"data": {"p": "hunter2"},}`: "f.json:1:27: this is not JSON: invalid character '}' looking for beginning of object " +
			"key string; remove the comma before it",
		"kind: Site": "f.json:1:1: this is not JSON: invalid character 'k' looking for beginning of value",
	} {
		if got := errText(checkJSON("f.json", []byte(in))); got != want {
			t.Errorf("%q: %s; want %s", in, got, want)
		}
	}
}
