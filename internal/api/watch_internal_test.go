package api

import (
	"errors"
	"testing"

	"github.com/trivet-project/trivet"
)

// A role that may read no kind is refused: without kinds, a watcher of the store follows all of them.
func TestWatchOfNoKind(t *testing.T) {
	for role, want := range map[trivet.AccountRole]error{"none": trivet.ErrForbidden, "": trivet.ErrForbidden,
		trivet.AccountViewer: nil, trivet.AccountAdmin: nil} {
		f := &watchFilter{}
		if err := f.authorize(role); !errors.Is(err, want) || want == nil && len(f.kinds) == 0 {
			t.Errorf("role %q: %v, kinds %v", role, err, f.kinds)
		}
	}
}
