package docsgen

import (
	"slices"
	"testing"
)

// The values of a type are all that a field may have: commands refuse others. Releases are not limited to those that
// the package names.
func TestValuesAreAll(t *testing.T) {
	t.Parallel()
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	if all := src.values("Release"); len(all) > 0 {
		t.Errorf("a release is one of %d values", len(all))
	}
	for of := range src.consts {
		var known []string
		for _, v := range src.values(of) {
			if slices.Contains(known, v.Value) {
				t.Errorf("%s has the value %q twice", of, v.Value)
			}
			known = append(known, v.Value)
		}
	}
}
