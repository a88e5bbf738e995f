package trivet_test

import (
	"os"
	"strings"
	"testing"
)

// grep returns the first line of a file that contains one of the words.
func grep(t *testing.T, file string, words ...string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		for _, word := range words {
			if strings.Contains(line, word) {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}
