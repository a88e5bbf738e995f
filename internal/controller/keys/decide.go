package keys

import (
	"fmt"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// step is the next step of a rotation.
type step int

const (
	none     step = iota
	create        // a head creates the new key
	follow        // all heads trust the new CA: clients learn that from now on
	activate      // all full heads have the new key, or all clients the new CA: it is used from now on
	reseal        // values are encrypted again
	drop          // the old CA has signed no certificate that is used; the grace of the old key is over
	finish        // no head has the old key
	restore       // no head has the new CA any more: the old one stays
	waiting       // for other heads
)

// decide returns the next step of the rotation of a ring of keys, and what it waits for. heads are the members of
// the cluster: those that join are among them, and those that are being removed are not.
func decide(k *trivet.Key, heads []*trivet.Head) (next step, reason string) {
	heads = full(heads)
	switch k.Status.Phase {
	case trivet.KeyDistributing:
		return decideNext(k, heads)
	case trivet.KeyResealing:
		return reseal, ""
	case trivet.KeyFollowing:
		first := func(h *trivet.Head) bool {
			held := h.Status.Keys(k.Name)
			return len(held) > 0 && held[0] == k.Status.Active
		}
		if others := without(heads, first); len(others) > 0 {
			return waiting, waitReason(others, "to use the new key")
		}
		return drop, ""
	case trivet.KeyDropping:
		only := []string{k.Status.Active}
		others := without(heads, func(h *trivet.Head) bool { return slices.Equal(h.Status.Keys(k.Name), only) })
		if len(others) > 0 {
			return waiting, waitReason(others, "to drop the old key")
		}
		return finish, ""
	}
	if k.Rotating() {
		return create, ""
	}
	return none, ""
}

// decideNext returns the step while the heads get the new key. Where no head has it any more, since the only one was
// removed, another one is created: nothing is encrypted with it yet.
func decideNext(k *trivet.Key, heads []*trivet.Head) (next step, reason string) {
	has := func(h *trivet.Head) bool { return slices.Contains(h.Status.Keys(k.Name), k.Status.Next) }
	missing := without(heads, has)
	holders := without(heads, func(h *trivet.Head) bool { return !has(h) })
	switch {
	case len(holders) == 0:
		return create, ""
	case len(missing) > 0:
		return waiting, waitReason(missing, "to get the new key from "+strings.Join(holders, ", "))
	}
	return activate, ""
}

// full returns the heads that are not witnesses.
func full(heads []*trivet.Head) (all []*trivet.Head) {
	for _, h := range heads {
		if h.Serves() {
			all = append(all, h)
		}
	}
	return all
}

// without returns the names of the heads for which ok is false.
func without(heads []*trivet.Head, ok func(*trivet.Head) bool) (names []string) {
	for _, h := range heads {
		if !ok(h) {
			names = append(names, h.Name)
		}
	}
	return names
}

func waitReason(heads []string, what string) string {
	return fmt.Sprintf("waits for %s %s; start a head that is down, or remove it", strings.Join(heads, ", "), what)
}
