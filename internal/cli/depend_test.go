package cli

import (
	"slices"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestRecordsAreSentAfterWhatTheyReferTo(t *testing.T) {
	t.Parallel()
	var all []*manifest
	for _, kind := range []string{"Provision", "Site", "Machine", "Template", "Notifier", "Network", "Machine", "Secret",
		"Image", "Platform"} {
		info, err := kindOf(kind)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &manifest{info: info})
	}
	first := all[2]
	byDependence(all)
	at := map[trivet.Kind]int{}
	for i, m := range all {
		at[m.info.Kind] = i
	}
	for after, before := range map[trivet.Kind][]trivet.Kind{
		"Provision": {"Template", "Machine", "Image"}, "Machine": {"Platform", "Secret", "Network"},
		"Template": {"Image"}, "Notifier": {"Secret"}, "Site": {"Platform"},
	} {
		for _, kind := range before {
			if at[kind] > at[after] {
				t.Errorf("%s is after %s", kind, after)
			}
		}
	}
	if at["Machine"] <= slices.Index(all, first) {
		t.Error("two records of one kind have changed places")
	}
}

// The rules that came later are the head's: it knows what is stored, and may stay as it is.
func TestLaterRulesAreTheHeads(t *testing.T) {
	t.Parallel()
	const network = "kind: Network\nname: lab\nspec: {cidr: 10.0.0.0/24, ntp: [\"fd00::1\"]}\n"
	found, err := readManifest("f.yaml", []byte(network))
	if err != nil || len(found) != 1 || trivet.ValidateWritten(found[0].record) == nil {
		t.Errorf("%d records, %v", len(found), err)
	}
}
