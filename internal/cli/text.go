package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// plainText returns a text without its byte order mark, and refuses what is not UTF-8: it would be changed silently.
func plainText(file string, text []byte) ([]byte, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	wrong := 0
	for wrong < len(text) && text[wrong] != 0 {
		r, size := utf8.DecodeRune(text[wrong:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		wrong += size
	}
	if wrong == len(text) {
		return text, nil
	}
	problem := fmt.Sprintf("the byte 0x%02x is no UTF-8; save the file as UTF-8", text[wrong])
	switch {
	case isUTF16(text):
		problem = "the file is UTF-16; save it as UTF-8"
	case text[wrong] == 0:
		problem = "the file is binary, not a text"
	}
	return nil, &placed{file: file, at: positionOf(text, wrong), problem: problem}
}

func isUTF16(text []byte) bool {
	return bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff})
}

// positionOf returns the position of a byte of a text.
func positionOf(text []byte, offset int) position {
	before := text[:offset]
	start := bytes.LastIndexByte(before, '\n') + 1
	return position{bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1}
}

// checkJSON refuses what YAML permits, and JSON does not, in a file that is named as JSON, and does not begin as YAML
// does. Where the file ends too early, the parser of YAML finds the bracket.
func checkJSON(file string, text []byte) error {
	if start := bytes.TrimSpace(text); bytes.HasPrefix(start, []byte("#")) || bytes.HasPrefix(start, []byte("---")) {
		return nil
	}
	err := json.NewDecoder(bytes.NewReader(text)).Decode(new(json.RawMessage))
	syntax := (*json.SyntaxError)(nil)
	if !errors.As(err, &syntax) {
		return nil
	}
	at := max(int(syntax.Offset)-1, 0)
	problem := "this is not JSON: " + syntax.Error()
	afterComma := bytes.HasSuffix(bytes.TrimSpace(text[:at]), []byte(","))
	if afterComma && strings.ContainsRune("]}", rune(text[at])) {
		problem += "; remove the comma before it"
	}
	return &placed{file: file, at: positionOf(text, at), problem: problem} // a line may be all of a secret
}
