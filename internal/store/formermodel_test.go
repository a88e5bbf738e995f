package store_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

func opPut(key, value string) clientv3.Op { return clientv3.OpPut(key, value) }

func opDelete(key string) clientv3.Op { return clientv3.OpDelete(key) }

// formerModel is what a store should have.
type formerModel struct {
	hot    map[string]trivet.Machine
	cold   map[string]trivet.Machine
	groups map[string][]string // by rack, the newest first
}

func (m *formerModel) retire(name string) {
	v := m.hot[name]
	delete(m.hot, name)
	m.cold[name] = v
	names := append(m.groups[v.Spec.Rack], name)
	slices.SortFunc(names, func(a, b string) int { return numberOf(b) - numberOf(a) })
	for _, old := range names[min(len(names), maxFormer):] {
		delete(m.cold, old)
	}
	m.groups[v.Spec.Rack] = names[:min(len(names), maxFormer)]
}

// numberOf returns the number in a name, which is that of the step that created the record.
func numberOf(name string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "m"))
	if err != nil {
		panic(err)
	}
	return n
}

func (m *formerModel) drop(name string) {
	rack := m.cold[name].Spec.Rack
	delete(m.cold, name)
	m.groups[rack] = slices.DeleteFunc(m.groups[rack], func(n string) bool { return n == name })
}

// names returns those of all records of a rack (empty: of all), in order.
func (m *formerModel) names(rack string) (names []string) {
	for _, all := range []map[string]trivet.Machine{m.hot, m.cold} {
		for name, v := range all {
			if rack == "" || v.Spec.Rack == rack {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// Random writes and moves by two heads, with a key of the store that is replaced, are read as a model says: by both,
// and by a head that is started then.
func TestFormerRecordsAreAsOthers(t *testing.T) {
	t.Parallel()
	m := storetest.Member(t)
	old, next := keyring.New(), keyring.New()
	opened := func(name string) (*head, *store.Table[trivet.Site]) {
		return openFormer(t, m, store.Options{Head: name, Cipher: keyring.NewCipher(keyring.Of(old, next))})
	}
	a, sites := opened("a")
	b, _ := opened("b")
	heads := []*head{a, b}
	a.reach(t, sites, "0.2")
	model := &formerModel{map[string]trivet.Machine{}, map[string]trivet.Machine{}, map[string][]string{}}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	one := func(from map[string]trivet.Machine) string {
		names := slices.Sorted(maps.Keys(from))
		return names[random.IntN(len(names))]
	}
	for i := range 250 {
		h := heads[random.IntN(2)].synced(t)
		table, op := h.machines, random.IntN(6)
		var err error
		switch {
		case op == 0 && len(model.cold) > 0:
			name := one(model.cold)
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return table.In(tx).DropFormer(name) })
			model.drop(name)
		case op <= 2 && len(model.hot) > 0:
			name := one(model.hot)
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return table.In(tx).Retire(name) })
			model.retire(name)
		case op == 3 && len(model.hot) > 0:
			name := one(model.hot)
			v := model.hot[name]
			v.Status.Power = fmt.Sprint(i)
			h.setPower(t, name, v.Status.Power)
			model.hot[name] = v
		default:
			v := machine(fmt.Sprintf("m%d", i), fmt.Sprint("r", random.IntN(3)))
			model.hot[v.Name] = *v
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return table.In(tx).Create(v) })
		}
		if err == nil && i == 120 {
			_, err = h.Update(t.Context(), func(tx *store.Tx) error { return tx.SetActive(next.ID()) })
			for from, more := "", true; more && err == nil; more = from != "" {
				var p store.ResealPage
				p, err = h.Reseal(t.Context(), from)
				from = p.Next
			}
		}
		if err != nil {
			t.Fatalf("seed %d, step %d: %v", seed, i, err)
		}
	}
	late, _ := opened("c")
	for i, h := range append(heads, late) {
		h.synced(t)
		for _, rack := range []string{"", "r0", "r1", "r2"} {
			fields := []string{}
			if rack != "" {
				fields = append(fields, "spec.rack="+rack)
			}
			for _, limit := range []int{1, 7, 1000} {
				if got := h.pages(t, limit, 500, fields...); !slices.Equal(got, model.names(rack)) {
					t.Errorf("seed %d: head %d has %v of %q, want %v", seed, i, got, rack, model.names(rack))
				}
			}
		}
		for _, all := range []map[string]trivet.Machine{model.hot, model.cold} {
			for name, want := range all {
				raw, err := h.Find(t.Context(), "Machine", name)
				if err != nil {
					t.Fatalf("seed %d: head %d: %s: %v", seed, i, name, err)
				}
				if got := jsonOf(t, raw); got.Spec.Rack != want.Spec.Rack || got.Status.Power != want.Status.Power {
					t.Errorf("seed %d: head %d: %s is %+v, want %+v", seed, i, name, got, want)
				}
			}
		}
		for name := range model.cold {
			if _, err := h.machines.Get(name); !errors.Is(err, trivet.ErrNotFound) {
				t.Errorf("seed %d: head %d has %s in its copy: %v", seed, i, name, err)
			}
		}
	}
}
