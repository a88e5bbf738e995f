package store_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// replay gives the seed of this run.
func replay(t *testing.T) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with: go test -run '^%s$' ./internal/store -seed=%d", t.Name(), s)
	return s
}

// one is a head alone on a bad line.
func one(t *testing.T, bug string) []HeadConfig {
	return []HeadConfig{{Name: "head0", Dir: t.TempDir(), Percent: 10, Bug: bug}}
}

// three are heads of one cluster, each on a bad line to its own member.
func three(t *testing.T) []HeadConfig {
	t.Helper()
	all := map[string]string{}
	var heads []HeadConfig
	for i := range 3 {
		// An address of 127.0.0.0/8 that hardly anybody else has: the port is used again when the head was killed.
		l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 64+rand.IntN(64), rand.IntN(256), 1+rand.IntN(254)))
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("head", i)
		all[name] = "http://" + l.Addr().String()
		heads = append(heads, HeadConfig{Name: name, Dir: t.TempDir(), Listen: all[name], Members: all, Percent: 10})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return heads
}

func TestLostAnswersAreLinearizable(t *testing.T) {
	h := record(t, replay(t), one(t, ""), func(h *history) { h.acks(400) })
	if err := h.verdict(); err != nil {
		t.Error(err)
	}
}

// Heads die by kill -9 and come back, one by one and two at once, while lines lose what they carry.
func TestKilledHeadsAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	h := record(t, replay(t), three(t), func(h *history) {
		for at := range h.cfgs {
			h.acks(100)
			h.kill(at)
			h.acks(100)
			h.start(at)
		}
		h.acks(100)
		h.kill(0)
		h.kill(1)
		h.start(0)
		h.acks(100)
		h.start(1)
		h.acks(100)
	})
	if err := h.verdict(); err != nil {
		t.Error(err)
	}
}

// The test above has to find what it is for.
func TestSeededBugsAreFound(t *testing.T) {
	for _, bug := range []string{"noCompare", "forgetID", "lose"} {
		t.Run(bug, func(t *testing.T) {
			h := record(t, replay(t), one(t, bug), func(h *history) { h.acks(60) })
			err := h.verdict()
			if err == nil {
				t.Error("the bug was not found")
			}
			t.Log(err)
		})
	}
}
