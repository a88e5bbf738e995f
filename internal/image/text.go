package image

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/trivet-project/trivet"
)

// texts are what is often downloaded instead of an image, by how it begins, in lower case.
var texts = []struct {
	begins *regexp.Regexp
	what   string
	hint   string
}{
	{regexp.MustCompile(`^<(!doctype html|html|head)\b`), "an HTML page",
		"the URL may be the one of a page about the image, of a log-in, or of an error: use the one of the file itself"},
	{regexp.MustCompile(`^<\?xml\b`), "an XML document, such as the error of a server", "check the URL"},
	{regexp.MustCompile(`^[{\[]`), "a JSON document, such as the error of a server", "check the URL"},
	{regexp.MustCompile(`^([0-9a-f]{32,128} [ *]\S|sha(256|512) \()`), "a list of checksums",
		"import the image that it names, with --digest"},
	{regexp.MustCompile(`^-----begin `), "a key, a certificate or a signature", "import the file that it belongs to"},
	{regexp.MustCompile(`^#!`), "a script", "import the image that it makes"},
	{regexp.MustCompile(``), "a text", "check the file or its URL"},
}

// refuseText recognises a file that is no disk by its first bytes: a disk has others than those of texts.
func refuseText(head []byte) error {
	if !isText(head) {
		return nil
	}
	head = bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	lower := bytes.ToLower(head[:min(len(head), 1000)])
	for _, t := range texts {
		if t.begins.Match(lower) {
			return &trivet.Error{Op: "read image", Hint: t.hint,
				Err: fmt.Errorf("%w: it is %s, not a disk: %q", trivet.ErrInvalid, t.what, firstLine(head))}
		}
	}
	return nil
}

// isText reports whether bytes are printable, in any usual encoding of one byte, or UTF-8.
func isText(b []byte) bool {
	isBinary := func(r rune) bool { return r < ' ' && !strings.ContainsRune("\t\n\v\f\r\x1b", r) || r == 0x7f }
	return !bytes.ContainsFunc(b, isBinary)
}

// firstLine returns the beginning of a text for an error message.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.ToValidUTF8(string(text[:min(len(text), 200)]), "?"), "\n")
	const most = 60
	if utf8.RuneCountInString(line) > most {
		return string([]rune(line)[:most]) + "..."
	}
	return strings.TrimSpace(line)
}
