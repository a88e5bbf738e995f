package store

import (
	"iter"
	"strings"

	"k8s.io/utils/third_party/forked/golang/btree"
)

// snapshot is everything in the store at one revision. It is immutable: a newer one shares most of its nodes.
type snapshot struct {
	rev  int64
	tree *btree.BTree[item] // records by key, and by each of their index paths
}

type item struct {
	path  string
	entry *entry
}

const degree = 16 // small nodes, since each revision copies those on its path

func newSnapshot(rev int64) *snapshot {
	return &snapshot{rev: rev, tree: btree.New(degree, func(a, b item) bool { return a.path < b.path })}
}

// next returns a copy that can be changed until it is published. Only one goroutine creates snapshots.
func (s *snapshot) next() *snapshot { return &snapshot{rev: s.rev, tree: s.tree.Clone()} }

// put and del change an unpublished snapshot and return the replaced entry.
func (s *snapshot) put(e *entry) (old *entry) {
	was, ok := s.tree.ReplaceOrInsert(item{e.key, e})
	if ok {
		was.entry.indexPaths(func(path string) { s.tree.Delete(item{path: path}) })
	}
	e.indexPaths(func(path string) { s.tree.ReplaceOrInsert(item{path, e}) })
	return was.entry
}

func (s *snapshot) del(key string) (old *entry) {
	was, ok := s.tree.Delete(item{path: key})
	if !ok {
		return nil
	}
	was.entry.indexPaths(func(path string) { s.tree.Delete(item{path: path}) })
	return was.entry
}

// get returns the entry of a key, or nil.
func (s *snapshot) get(key string) *entry {
	it, _ := s.tree.Get(item{path: key})
	return it.entry
}

// revOf returns a key's ModRevision, or 0 if the key is absent.
func (s *snapshot) revOf(key string) int64 {
	if e := s.get(key); e != nil {
		return e.mod
	}
	return 0
}

// changeOf returns the revision of a key's last change, or 0 if the key is absent.
func (s *snapshot) changeOf(key string) int64 {
	if e := s.get(key); e != nil {
		return e.rev
	}
	return 0
}

// under yields the entries whose path has a prefix and is greater than another path, in order.
func (s *snapshot) under(prefix, after string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		s.tree.AscendGreaterOrEqual(item{path: max(prefix, after)}, func(it item) bool {
			if it.path == after {
				return true
			}
			return strings.HasPrefix(it.path, prefix) && yield(it.entry)
		})
	}
}
