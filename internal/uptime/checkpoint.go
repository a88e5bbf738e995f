package uptime

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"
)

// Checkpoint is how much of each wait is used, by the ID of the wait.
type Checkpoint map[WaitID]time.Duration

// WaitID identifies a wait: a digest of what it is about. That any two of 100,000 waits have the same is less likely than
// one to a billion.
type WaitID [8]byte

const (
	// MaxWaits is how many waits an encoded checkpoint has at most; it drops those beyond.
	MaxWaits = 100_000
	// MaxCheckpoint is how long an encoded checkpoint is at most, in bytes: less than a transaction may have.
	MaxCheckpoint = 1 + MaxWaits*entrySize

	format    = 1
	entrySize = 8 + 4
	unit      = 100 * time.Millisecond
)

// Encode returns the checkpoint as bytes: the format, and then for each wait, in order, its ID and how many tenths of a
// second are used.
func (c Checkpoint) Encode() []byte {
	ids := slices.SortedFunc(maps.Keys(c), func(a, b WaitID) int { return bytes.Compare(a[:], b[:]) })
	ids = ids[:min(len(ids), MaxWaits)]
	doc := make([]byte, 0, 1+len(ids)*entrySize)
	doc = append(doc, format)
	for _, id := range ids {
		doc = append(doc, id[:]...)
		doc = binary.BigEndian.AppendUint32(doc, uint32(min(max(c[id]/unit, 0), 1<<32-1)))
	}
	return doc
}

// Add adds another checkpoint: of each wait, the longer time counts.
func (c Checkpoint) Add(other Checkpoint) {
	for id, used := range other {
		c[id] = max(c[id], used)
	}
}

// Merge adds an encoded checkpoint.
func (c Checkpoint) Merge(doc []byte) error {
	if len(doc) == 0 || len(doc) > MaxCheckpoint || doc[0] != format || (len(doc)-1)%entrySize != 0 {
		return errors.New("it is not a checkpoint of this version")
	}
	for e := range slices.Chunk(doc[1:], entrySize) {
		id := WaitID(e)
		c[id] = max(c[id], time.Duration(binary.BigEndian.Uint32(e[len(id):]))*unit)
	}
	return nil
}
