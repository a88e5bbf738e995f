package store

import (
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/trivet-project/trivet"
)

// A stored value is taken for what this head is writing only where it would authenticate: it has the same bytes, in the
// place for which they were encrypted. Its record has one owner.
func TestOwnWriteIsFoundInItsPlaceOnly(t *testing.T) {
	t.Parallel()
	first := &ownWrite{key: "k", sealed: "box", version: 1, value: value{doc: []byte("{}")}, rec: &trivet.Machine{}}
	later := &ownWrite{key: "k", sealed: "box", version: 3, created: 7, value: value{doc: []byte("{}")}}
	for _, test := range []struct {
		name  string
		write *ownWrite
		key   string
		kv    *mvccpb.KeyValue
		found bool
	}{
		{"created", first, "k", &mvccpb.KeyValue{Value: []byte("box"), Version: 1, CreateRevision: 9}, true},
		{"replaced", later, "k", &mvccpb.KeyValue{Value: []byte("box"), Version: 3, CreateRevision: 7}, true},
		{"other bytes", first, "k", &mvccpb.KeyValue{Value: []byte("bax"), Version: 1, CreateRevision: 9}, false},
		{"written again", first, "k", &mvccpb.KeyValue{Value: []byte("box"), Version: 2, CreateRevision: 9}, false},
		{"replayed later", later, "k", &mvccpb.KeyValue{Value: []byte("box"), Version: 4, CreateRevision: 7}, false},
		{"after a deletion", later, "k", &mvccpb.KeyValue{Value: []byte("box"), Version: 3, CreateRevision: 8}, false},
		{"other key", first, "l", &mvccpb.KeyValue{Value: []byte("box"), Version: 1, CreateRevision: 9}, false},
	} {
		o := ownWrites{byKey: map[string]*ownWrite{}}
		all := []*ownWrite{test.write}
		o.add(all)
		v, rec, found := o.find(test.key, test.kv)
		if found != test.found || found && string(v.doc) != "{}" || found && (rec != nil) != (test.write == first) {
			t.Errorf("%s: %v %v %v", test.name, v, rec, found)
		}
		if _, again, _ := o.find(test.key, test.kv); again != nil {
			t.Errorf("%s: its record has two owners", test.name)
		}
		if o.remove(all); len(o.byKey) > 0 {
			t.Errorf("%s: it stays", test.name)
		}
		first.rec = &trivet.Machine{}
	}
}

// Of two transactions that write one key, the end of the first one leaves what the second one writes.
func TestOwnWritesOfTwoTransactions(t *testing.T) {
	t.Parallel()
	o := ownWrites{byKey: map[string]*ownWrite{}}
	one, two := []*ownWrite{{key: "k", sealed: "1", version: 1}}, []*ownWrite{{key: "k", sealed: "2", version: 1}}
	o.add(one)
	o.add(two)
	o.remove(one)
	if _, _, found := o.find("k", &mvccpb.KeyValue{Value: []byte("2"), Version: 1}); !found {
		t.Error("the second one is not found")
	}
}
