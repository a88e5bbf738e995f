package store

import (
	"sort"
	"sync"
)

// volume is how many bytes of keys and values were written up to a revision, since the copy was loaded. etcd reads all
// that a watch from an older revision asks for into memory at once, whatever the watch reads of it.
type volume struct {
	mu    sync.Mutex
	total int64        // guarded by mu, as below
	marks []volumeMark // by revision
}

// volumeMark is the total at a revision.
type volumeMark struct{ rev, total int64 }

// markEvery is how many revisions have one mark.
const markEvery = 16

// reset begins at a revision.
func (v *volume) reset(rev int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.marks = append(v.marks[:0], volumeMark{rev, v.total})
}

// add adds what was written up to a revision. Marks that no replay may begin at are dropped.
func (v *volume) add(rev, bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.total += bytes
	if rev-v.marks[len(v.marks)-1].rev < markEvery {
		return
	}
	v.marks = append(v.marks, volumeMark{rev, v.total})
	if old := v.before(rev - maxReplay); old > len(v.marks)/2 {
		v.marks = append([]volumeMark{}, v.marks[old:]...)
	}
}

// since returns how many bytes were written after a revision, or a few more, and how many of the revisions were before
// the copy was loaded: of these it is not known.
func (v *volume) since(rev int64) (bytes, unknown int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	from := v.marks[v.before(rev)]
	return v.total - from.total, max(0, from.rev-rev)
}

// before returns the last mark up to a revision; the first one where there is none. mu is held.
func (v *volume) before(rev int64) int {
	return max(0, sort.Search(len(v.marks), func(i int) bool { return v.marks[i].rev > rev })-1)
}
