package keys

import (
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// decideCA returns the next step of the rotation of the CA, and what it waits for. Each phase ends when all members,
// witnesses included, use the CAs that [wantedCAs] has for it.
func decideCA(k *trivet.Key, heads []*trivet.Head) (next step, reason string) {
	if k.Status.Phase == "" {
		if !k.Rotating() {
			return none, ""
		}
		return beginCA(heads)
	}
	if next := lostCA(k, full(heads)); next != none {
		return next, ""
	}
	wanted := wantedCAs(&k.Status)
	others := without(heads, func(h *trivet.Head) bool { return slices.Equal(h.Status.CAs, wanted) })
	if len(others) > 0 {
		return waiting, waitReason(others, "to use "+caText[k.Status.Phase])
	}
	switch k.Status.Phase {
	case trivet.KeyDistributing:
		return follow, ""
	case trivet.KeyFollowing:
		return activate, ""
	case trivet.KeySigning:
		return drop, ""
	}
	return finish, ""
}

// beginCA returns the first step, where all members use the same CA, and no other one: a record that was put back to
// its beginning must not make heads refuse each other.
func beginCA(heads []*trivet.Head) (next step, reason string) {
	silent := without(heads, func(h *trivet.Head) bool { return len(h.Status.CAs) > 0 })
	if len(silent) > 0 {
		return waiting, waitReason(silent, "to report its CA: its release is older")
	}
	same := func(h *trivet.Head) bool { return len(h.Status.CAs) == 1 && h.Status.CAs[0] == heads[0].Status.CAs[0] }
	if others := without(heads, same); len(others) > 0 {
		return waiting, waitReason(others, "to use the same CA as "+heads[0].Name+", and no other one")
	}
	return create, ""
}

// caText says what all heads do in a phase.
var caText = map[trivet.KeyPhase]string{
	trivet.KeyDistributing: "both CAs",
	trivet.KeyFollowing:    "both CAs",
	trivet.KeySigning:      "a certificate of the new CA",
	trivet.KeyDropping:     "the new CA only",
}

// lostCA returns the step where no head has the new CA on its disk, since the only one was removed, or after a
// recovery; none: some head has it.
func lostCA(k *trivet.Key, heads []*trivet.Head) step {
	pin, lost := k.Status.Active, restore
	if k.Status.Next != "" {
		pin, lost = k.Status.Next, create
	}
	for _, h := range heads {
		if len(h.Status.StoredCAs) == 0 || slices.Contains(h.Status.StoredCAs, pin) {
			return none // a head that joins has not published any yet
		}
	}
	return lost
}

// wantedCAs returns the pins of the CAs that all heads use in a phase, the one that signs first.
func wantedCAs(s *trivet.KeyStatus) []string {
	switch s.Phase {
	case trivet.KeyDistributing, trivet.KeyFollowing:
		return []string{s.Active, s.Next}
	case trivet.KeySigning:
		return []string{s.Active, s.Old}
	}
	if s.Active == "" {
		return nil
	}
	return []string{s.Active}
}

// mayRestart reports whether this head may start again to use the wanted CAs: one head at a time, in the order of their
// names, while all other members respond and know a leader.
//
// It may not while a head is being removed, whose member may still count.
func mayRestart(self string, wanted []string, heads []*trivet.Head, healthy func(*trivet.Head) bool) bool {
	for _, h := range heads {
		if h.Spec.Remove {
			return false
		}
		behind := h.Serves() && h.Name < self && !slices.Equal(h.Status.CAs, wanted)
		if h.Name != self && (behind || !healthy(h)) {
			return false
		}
	}
	return true
}

// shortPin is a pin in a text for people; the ID of a key that is no CA stays as it is.
func shortPin(pin string) string {
	digits, ok := strings.CutPrefix(pin, "sha256:")
	if !ok {
		return pin
	}
	return "sha256:" + digits[:min(16, len(digits))]
}
