package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/cluster"
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
	return []HeadConfig{bad(HeadConfig{Name: "head0", Dir: t.TempDir(), Bug: bug})}
}

// bad puts a head on a bad line to its own member.
func bad(c HeadConfig) HeadConfig {
	c.Percent, c.Try, c.Timeout = 10, 500*time.Millisecond, 2*time.Second
	return c
}

// three are heads of one cluster that was one head first, each like c.
func three(t testing.TB, c HeadConfig) []HeadConfig {
	t.Helper()
	var heads []HeadConfig
	var first node
	for i := range 3 {
		// An address of 127.0.0.0/8 that hardly anybody else has: the port is used again when the head was killed.
		c.Name, c.Dir = fmt.Sprint("head", i), t.TempDir()
		c.Listen = fmt.Sprintf("127.%d.%d.%d:7480", 64+rand.IntN(64), rand.IntN(256), 1+rand.IntN(254))
		var id uint64
		var all []cluster.Peer
		if i > 0 {
			eventually(t, func() (err error) { id, all, err = first.Add(t.Context(), c.url()); return err })
		}
		m, err := c.open(all)
		if err != nil {
			t.Fatal(err)
		}
		defer m.close()
		if i == 0 {
			first = m
		} else {
			eventually(t, func() error { return first.Promote(t.Context(), id) })
		}
		heads = append(heads, c)
	}
	return heads
}

// eventually tries until it works.
func eventually(t testing.TB, try func() error) {
	t.Helper()
	var err error
	for range 600 {
		if err = try(); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal(err)
}

func TestLostAnswersAreLinearizable(t *testing.T) {
	t.Parallel()
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
	h := record(t, replay(t), three(t, bad(HeadConfig{})), func(h *history) {
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
	t.Parallel()
	for bug, acks := range map[string]int{"noCompare": 60, "forgetID": 300, "lose": 60} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			h := record(t, replay(t), one(t, bug), func(h *history) { h.acks(acks) })
			err := h.verdict()
			if err == nil {
				t.Error("the bug was not found")
			}
			t.Log(err)
		})
	}
}
