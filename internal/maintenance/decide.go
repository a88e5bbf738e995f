package maintenance

import "github.com/trivet-project/trivet/internal/cluster"

// level is how full the store is.
type level int

const (
	normal level = iota
	filling
	full
)

// decide returns the level, and the revision before which history is dropped; 0: none. last is the store's revision
// at the last check, 0 at the first one, and now the present one: what was replaced between them is kept for watches
// that resume.
func decide(u cluster.Usage, last, now int64) (l level, compact int64) {
	switch {
	case u.Full():
		l = full
	case u.Filling():
		l = filling
	default:
		return normal, 0
	}
	if last < now {
		compact = last
	}
	return l, compact
}

// A file is defragmented when at least half of it is unused, and it is this large: a percentage of the quota, bounded.
const (
	defragmentPercent = 10
	defragmentMaximum = 512 << 20
)

// fragmented reports whether the member's file is to be defragmented.
func fragmented(u cluster.Usage) bool {
	return u.File >= min(u.Quota/100*defragmentPercent, defragmentMaximum) && u.Used <= u.File/2
}
