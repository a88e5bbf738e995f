package api

import (
	"fmt"
	"reflect"

	"github.com/trivet-project/trivet"
)

// admitCount keeps the spec of a provision with members constant, but for how many there are.
func admitCount(old, next *trivet.Provision) error {
	was, is := old.Spec, next.Spec
	if (was.Count == nil) == (is.Count == nil) {
		was.Count, was.MaxInFlight = is.Count, is.MaxInFlight
	}
	if reflect.DeepEqual(was, is) {
		return nil
	}
	return &trivet.Error{Op: "update", Kind: "Provision", Name: next.ShortName(),
		Err: fmt.Errorf("%w: only spec.count and spec.maxInFlight of a provision with members can be changed",
			trivet.ErrConflict),
		Hint: "delete it and create it again"}
}
