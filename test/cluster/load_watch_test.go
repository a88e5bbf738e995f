package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A section that ends within a revision leaves the whole revision to the next one.
func TestSectionsAreWholeRevisions(t *testing.T) {
	a, b := change{Revision: 7, Name: "a"}, change{Revision: 8, Name: "b"}
	mark, last := change{Revision: 8, Name: markKey}, change{Revision: 8, Name: lastKey}
	for name, tc := range map[string]struct {
		got, kept []change
		upTo      int64
	}{
		"the mark alone":              {[]change{a, mark}, []change{a}, 7},
		"the mark after others of it": {[]change{a, b, mark}, []change{a}, 7},
		"nothing but the mark":        {[]change{mark}, []change{}, 7},
		"the last change":             {[]change{a, b, last}, []change{a, b, last}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			kept, upTo := sectionOf(tc.got)
			if d := cmp.Diff(tc.kept, kept); d != "" || upTo != tc.upTo {
				t.Errorf("up to %d, want %d\n%s", upTo, tc.upTo, d)
			}
		})
	}
}
