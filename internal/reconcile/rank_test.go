package reconcile

import (
	"fmt"
	"testing"
)

// Keys are spread over heads with similar names, and the loss of a head moves only its own keys.
func TestKeysAreSpread(t *testing.T) {
	first := func(heads []string, key string) (best string) {
		for _, h := range heads {
			if best == "" || score(h, key) > score(best, key) {
				best = h
			}
		}
		return best
	}
	all, keys := []string{"head0", "head1", "head2"}, map[string]int{}
	for i := range 3000 {
		key := fmt.Sprint("machine", i)
		h := first(all, key)
		keys[h]++
		if h != "head2" && first(all[:2], key) != h {
			t.Errorf("%s moved from %s, which is up", key, h)
		}
	}
	for _, h := range all {
		if keys[h] < 900 || keys[h] > 1100 {
			t.Errorf("%s has %d of 3000 keys", h, keys[h])
		}
	}
}
