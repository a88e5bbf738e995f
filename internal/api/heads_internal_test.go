package api

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivet-project/trivet"
)

// No head is removed while most of the others are down; one that is down itself may be.
func TestEnoughHeadsAreLeft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		states []string // of head0, head1, ...
		remove int
		ok     bool
	}{
		{[]string{"leader"}, 0, true}, // refused for another reason
		{[]string{"leader", "member"}, 1, true},
		{[]string{"leader", "down"}, 1, true},
		{[]string{"leader", "down", "member"}, 1, true},
		{[]string{"leader", "down", "member"}, 2, false},
		{[]string{"leader", "down", "member"}, 0, false},
		{[]string{"leader", "down", "member", "member"}, 0, true},
		{[]string{"leader", "down", "member", "joining"}, 3, true},
		{[]string{"leader", "down", "member", "removing"}, 2, false},
		{[]string{"leader", "down", "down", "member", "member"}, 0, false},
		{[]string{"leader", "down", "down", "member", "member"}, 1, true},
	} {
		var c trivet.Cluster
		for i, state := range tc.states {
			c.Heads = append(c.Heads, trivet.HeadView{Name: fmt.Sprint("head", i), State: state})
		}
		err := enoughLeft("remove", c, fmt.Sprint("head", tc.remove))
		if (err == nil) != tc.ok || err != nil && !errors.Is(err, trivet.ErrConflict) {
			t.Errorf("%v without head%d: %v", tc.states, tc.remove, err)
		}
	}
}
