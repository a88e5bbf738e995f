package controller

import (
	"hash/fnv"
	"time"

	"github.com/trivet-project/trivet/internal/fleet"
)

// turns lets heads go one after the other where all would do the same: rendezvous hashing gives each key its order of heads.
// It only spares work. What is right is decided by compare, and a head whose turn has passed is followed by the next.
type turns struct {
	fleet *fleet.Fleet
	live  func(head string) bool // nil: there is no other head
}

// turnTime is how long a head may take for its turn.
const turnTime = 2 * time.Second

// rank is how many heads go before this one.
func (t turns) rank(key string) int {
	own, before := score(t.fleet.Self(), key), 0
	for name := range t.fleet.OtherHeads() {
		if score(name, key) > own && t.live != nil && t.live(name) {
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
