package store_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/cluster"
)

// replay returns the seed of this run and logs how to replay it.
func replay(t *testing.T) uint64 {
	t.Helper()
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("replay with: go test -run '^%s$' ./internal/store -seed=%d", t.Name(), s)
	return s
}

// one returns the configuration of a single head with a faulty link.
func one(t *testing.T, bug string) []HeadConfig {
	return []HeadConfig{faulty(HeadConfig{Name: "head0", Dir: t.TempDir(), Bug: bug})}
}

// faulty gives a head a faulty link to its own member.
func faulty(c HeadConfig) HeadConfig {
	c.Percent, c.AttemptTimeout, c.Timeout = 10, 500*time.Millisecond, 2*time.Second
	return c
}

// three returns the configurations of three heads of one cluster, each like c.
func three(t testing.TB, c HeadConfig) []HeadConfig {
	t.Helper()
	var heads []HeadConfig
	var first node
	for i := range 3 {
		// A random loopback address: the port is used again after the head was killed.
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

// eventually retries until try succeeds.
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

func TestLostResponsesAreLinearizable(t *testing.T) {
	t.Parallel()
	h := record(t, replay(t), one(t, ""), func(h *history) { h.acks(400) })
	if err := h.check(); err != nil {
		t.Error(err)
	}
}

// Heads are killed by SIGKILL and restarted, one by one and two at once, while links lose messages.
func TestKilledHeadsAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	h := record(t, replay(t), three(t, faulty(HeadConfig{})), func(h *history) {
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
	if err := h.check(); err != nil {
		t.Error(err)
	}
}

// The tests above must detect these bugs.
func TestSeededBugsAreDetected(t *testing.T) {
	t.Parallel()
	for bug, acks := range map[string]int{"noCompare": 60, "forgetID": 300, "lose": 60} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			h := record(t, replay(t), one(t, bug), func(h *history) { h.acks(acks) })
			err := h.check()
			if err == nil {
				t.Error("the bug was not detected")
			}
			t.Log(err)
		})
	}
}
