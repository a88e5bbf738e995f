package docsgen

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")

// Each test that the page of guarantees names exists, and each item of its lists names one, unless the list says what an
// attacker can do.
func TestGuaranteesNameTests(t *testing.T) {
	const page = "docs/security.md"
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, names := range readTree(t).tests {
		known = append(known, strings.Split(names, "|")...)
	}
	for _, m := range testName.FindAllStringSubmatch(string(content), -1) {
		if !slices.Contains(known, m[1]) {
			t.Errorf("%s names %s, which does not exist", page, m[1])
		}
	}
	for _, item := range unproven(string(content)) {
		t.Errorf("%s guarantees, and names no test: %.80q", page, item)
	}
}

// unproven returns the items of lists that name no test. The items of a list after a paragraph that ends with "can:"
// are no guarantees.
func unproven(page string) (items []string) {
	guarantees, last := true, "" // last is the last line that is not empty
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		isItem := strings.HasPrefix(line, "- ")
		if isItem && !strings.HasPrefix(last, "- ") && !strings.HasPrefix(last, "  ") {
			guarantees = !strings.HasSuffix(last, "can:")
		}
		switch {
		case isItem && guarantees:
			items = append(items, line)
		case strings.HasPrefix(line, "  ") && guarantees && len(items) > 0:
			items[len(items)-1] += "\n" + line
		}
		if line != "" {
			last = line
		}
	}
	return slices.DeleteFunc(items, testName.MatchString)
}

func TestUnproven(t *testing.T) {
	const page = "# Page\n\n- one (`TestOne`)\n- two\n  goes on (`FuzzTwo`)\n- three\n  has none\n\n" +
		"An attacker\ncan:\n\n- four\n  of them\n- five\n\nAnd so:\n\n- six\n"
	if got, want := unproven(page), []string{"- three\n  has none", "- six"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
