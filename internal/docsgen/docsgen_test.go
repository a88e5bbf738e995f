package docsgen

import (
	"strings"
	"testing"
)

const root = "../.."

func examples(t *testing.T) []*example {
	t.Helper()
	all, err := readExamples(root + "/" + examplesDir)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReferenceRecords(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	page := records(src, examples(t))
	for _, name := range boundName.FindAllStringSubmatch(page, -1) {
		if _, isConstant := src.bounds[name[1]]; isConstant {
			t.Errorf("records.md names the constant %s, whose value docsgen cannot compute", name[1])
		}
	}
	Check(t, root+"/docs/reference/records.md", page)
}

// The descriptions that programs have are those of the page.
func TestReferenceExplained(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	content, err := explained(src, examples(t))
	if err != nil {
		t.Fatal(err)
	}
	CheckFile(t, root+"/internal/reference/records.json", content)
}

func TestReferenceMetrics(t *testing.T) {
	page, err := metrics(root)
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root+"/docs/reference/metrics.md", page)
}

func TestReferenceActions(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root+"/docs/reference/actions.md", actions(cutExamples(withRules(document(src)), examples(t))))
}

func TestReferenceEvents(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	page, err := events(src)
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root+"/docs/reference/events.md", page)
}

// Every field has a comment, or a type with one.
func TestEveryFieldIsDescribed(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(records(src, nil)) {
		if field, ok := strings.CutSuffix(line, "|  |\n"); ok && strings.HasPrefix(line, "| `") {
			t.Errorf("no comment on %s", field)
		}
	}
}
