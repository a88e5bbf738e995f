package fleet_test

import (
	"reflect"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// The head that writes a run and another one have equal copies: the first one keeps the records that it wrote, the
// other one decodes them.
func TestCopiesOfTwoHeadsAreEqual(t *testing.T) {
	m := storetest.Member(t)
	r := rackOn(t, fleet.New(storetest.On(t, m, store.Options{}, state.New), "head0"))
	other := storetest.On(t, m, store.Options{}, state.New)
	r.install("#cloud-config")
	if err := other.Store.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, kind := range trivet.Kinds {
		own, _ := r.Store.List(kind.Kind, "", "", 0)
		decoded, _ := other.Store.List(kind.Kind, "", "", 0)
		if len(own) != len(decoded) {
			t.Fatalf("%d records of kind %s, %d at the other head", len(own), kind.Kind, len(decoded))
		}
		for i := range own {
			compared++
			if string(own[i].JSON()) != string(decoded[i].JSON()) {
				t.Errorf("%s %s:\n%s\n%s", kind.Kind, own[i].Name(), own[i].JSON(), decoded[i].JSON())
			}
			if !reflect.DeepEqual(own[i].Record(), decoded[i].Record()) {
				t.Errorf("%s %s:\n%#v\n%#v", kind.Kind, own[i].Name(), own[i].Record(), decoded[i].Record())
			}
		}
	}
	if compared < 6 {
		t.Errorf("%d records were compared", compared)
	}
}
