package store

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/trivet-project/trivet"
)

// snapshot is everything in the store at one revision. It is immutable: a newer one shares most of its nodes.
type snapshot struct {
	rev   int64
	tree  *btree.BTree[item]   // records by key
	index *btree.BTree[string] // index paths, which lead to the keys: a record that changes keeps most of its paths
}

type item struct {
	key   string
	entry *entry
}

const degree = 16 // small nodes, since each revision copies those on its path

func newSnapshot(rev int64) *snapshot {
	return &snapshot{rev: rev, tree: btree.New(degree, func(a, b item) bool { return a.key < b.key }),
		index: btree.New(degree, func(a, b string) bool { return a < b })}
}

// next returns a copy that can be changed until it is published. Only one goroutine creates snapshots.
func (s *snapshot) next() *snapshot {
	return &snapshot{rev: s.rev, tree: s.tree.Clone(), index: s.index.Clone()}
}

// put and del change an unpublished snapshot and return the replaced entry.
func (s *snapshot) put(e *entry) (old *entry) {
	was, _ := s.tree.ReplaceOrInsert(item{e.key, e})
	s.reindex(e, was.entry.record(), e.record())
	return was.entry
}

func (s *snapshot) del(key string) (old *entry) {
	was, ok := s.tree.Delete(item{key: key})
	if !ok {
		return nil
	}
	s.reindex(was.entry, was.entry.record(), nil)
	return was.entry
}

// reindex changes the index paths of an entry from those of one version of its record to those of another.
func (s *snapshot) reindex(e *entry, was, is trivet.Record) {
	if e.info == nil {
		return
	}
	for _, ix := range e.info.indexes {
		before, after := ix.keysOf(was), ix.keysOf(is)
		if slices.Equal(before, after) {
			continue
		}
		for _, key := range before {
			if !slices.Contains(after, key) {
				s.index.Delete(indexPath(e, ix, key))
			}
		}
		for _, key := range after {
			if !slices.Contains(before, key) {
				s.index.ReplaceOrInsert(indexPath(e, ix, key))
			}
		}
	}
}

// get returns the entry of a key, or nil.
func (s *snapshot) get(key string) *entry {
	it, _ := s.tree.Get(item{key: key})
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

// under yields the entries whose key has a prefix and is greater than another key, in order.
func (s *snapshot) under(prefix, after string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		s.tree.AscendGreaterOrEqual(item{key: max(prefix, after)}, func(it item) bool {
			if it.key == after {
				return true
			}
			return strings.HasPrefix(it.key, prefix) && yield(it.entry)
		})
	}
}

// listed yields the entries that have a key in an index, in order of name.
func (s *snapshot) listed(info *kindInfo, ix index, key string) iter.Seq[*entry] {
	return s.indexed(listPath(info.part, ix.name, key), "")
}

// indexed yields the entries that have an index path which has a prefix and is greater than another path, in order.
func (s *snapshot) indexed(prefix, after string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		s.index.AscendGreaterOrEqual(max(prefix, after), func(path string) bool {
			if path == after {
				return true
			}
			return strings.HasPrefix(path, prefix) && yield(s.get(path[strings.LastIndexByte(path, 0)+1:]))
		})
	}
}
