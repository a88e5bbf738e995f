package reconcile

import "hash/fnv"

// Ranking orders the heads for each key, so that they do not all process it at once: rendezvous hashing. It only
// saves work. Correctness rests on compare, and when a head does not process its key in time, the next one does.
type Ranking struct {
	Self string
	// Others returns the other heads that run controllers. The values are not used.
	Others func() map[string]string
	// Live reports whether another head is working; nil: no other head is.
	Live func(head string) bool
}

// Rank returns how many heads go before this one for a key.
func (r Ranking) Rank(key string) int {
	own, before := score(r.Self, key), 0
	for name := range r.Others() {
		if score(name, key) > own && r.Live != nil && r.Live(name) {
			before++
		}
	}
	return before
}

func score(head, key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(key + "\x00" + head))
	x := h.Sum64() // whose high bits differ little for names that differ in their last letter: mix (splitmix64)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
