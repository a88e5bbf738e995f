// Package storetest runs real stores for tests, each on a single-member cluster in the process of the test. A separate
// member for each test takes about 0.1 s and allows tests to run in parallel.
package storetest

import (
	"cmp"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/store"
)

// Heartbeat is the interval with which a single member becomes the leader quickly.
const Heartbeat = cluster.MinHeartbeat

// Member runs a member in a temporary directory until the test ends.
func Member(t testing.TB) *cluster.Member {
	t.Helper()
	return MemberWith(t, cluster.Config{})
}

// MemberWith runs a member with a configuration, whose Dir, Name and Heartbeat may be left empty.
func MemberWith(t testing.TB, cfg cluster.Config) *cluster.Member {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Name = cmp.Or(cfg.Name, "head0")
	cfg.Heartbeat = cmp.Or[time.Duration](cfg.Heartbeat, Heartbeat)
	m, err := cluster.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// New starts a store on a member of its own and returns its tables: storetest.New(t, state.New).
func New[T any](t testing.TB, tables func(*store.Store) T) T {
	t.Helper()
	return On(t, Member(t), store.Options{}, tables)
}

// key is that of all stores of tests, also in several processes.
const key = "ff502b4b 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

// Cipher returns the cipher of stores that have no key of their own.
func Cipher() *keyring.Cipher {
	ring, err := keyring.Parse([]byte(key))
	if err != nil {
		panic(err)
	}
	return keyring.NewCipher(ring)
}

// On starts a store on a member, beside others if there are any, and returns its tables. The store ends with the test.
func On[T any](t testing.TB, m *cluster.Member, opts store.Options, tables func(*store.Store) T) T {
	t.Helper()
	if opts.Cipher == nil {
		opts.Cipher = Cipher()
	}
	s := store.New(m.Client(), opts)
	created := tables(s)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return created
}

// NoTables is the argument for a store without tables, such as one that is used for its leases only.
func NoTables(s *store.Store) *store.Store { return s }
