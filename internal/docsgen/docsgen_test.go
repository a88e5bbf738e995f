package docsgen

import (
	"testing"
)

const root = "../.."

func TestReferenceRecords(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	page := records(src)
	if name := boundName.FindString(page); name != "" {
		t.Errorf("records.md names the constant %s, whose value docsgen cannot compute", name)
	}
	Check(t, root+"/docs/reference/records.md", page)
}

func TestReferenceMetrics(t *testing.T) {
	page, err := metrics(root)
	if err != nil {
		t.Fatal(err)
	}
	Check(t, root+"/docs/reference/metrics.md", page)
}
