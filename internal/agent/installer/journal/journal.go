// Package journal records the attempts that an agent has started and ended, so that a crash loses no report and a test
// can read what was done to a disk.
//
// A journal is in memory and, if it has a file or block device, in a bounded region there: two halves, of which the
// one with the higher generation is in use. A half is a header line and one line per entry, each with a checksum that
// continues the previous line's, so that an incomplete line or the rest of an older generation is never read as an
// entry.
package journal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// ErrFull means that the region is too small for the unacknowledged reports. Nothing was written.
var ErrFull = errors.New("journal is full")

// Entry is one line. It is a grant (no report, no acknowledgement), a report or an acknowledgement.
type Entry struct {
	Time     time.Time      `json:"time,omitzero"` // the machine's clock, for people
	Epoch    int64          `json:"epoch"`
	Workflow string         `json:"workflow,omitempty"` // UID, in a grant
	Boot     string         `json:"boot,omitempty"`     // in a grant: which boot of the machine it was
	Report   *trivet.Report `json:"report,omitempty"`   // start (state running) or end of an attempt
	Acked    int64          `json:"acked,omitempty"`    // reports up to this one are in the store
}

// Journal is safe for use by several goroutines.
type Journal struct {
	mu sync.Mutex // guards following
	// region is nil for a journal in memory.
	region  *region
	grant   Entry   // the newest
	seq     int64   // of the last report under grant
	acked   int64   // under grant
	entries []Entry // the content of the region; without a region, those that are not acknowledged
	// isIncomplete is set after a failed write: the region lacks entries, so that the next write must rewrite it.
	isIncomplete bool
}

// Memory returns a journal in memory only.
func Memory() *Journal { return &Journal{} }

// Open opens or creates the journal in a file or block device, which must be blank or a journal. It is locked until
// Close.
func Open(path string) (*Journal, error) {
	r, entries, err := openRegion(path)
	if err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	j := &Journal{region: r, entries: entries}
	for _, e := range entries {
		j.learn(e)
	}
	return j, nil
}

// learn updates the newest grant and its counters by an entry.
func (j *Journal) learn(e Entry) {
	switch {
	case e.Report == nil && e.Acked == 0:
		j.grant, j.seq, j.acked = e, 0, 0
	case e.Epoch != j.grant.Epoch:
	case e.Report != nil:
		j.seq = max(j.seq, e.Report.Seq)
	default:
		j.acked, j.seq = max(j.acked, e.Acked), max(j.seq, e.Acked)
	}
}

// Last returns the newest grant: its epoch is 0 when there was none.
func (j *Journal) Last() Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.grant
}

// Grant starts a new epoch, whose reports up to acked are in the store. Unacknowledged reports of older epochs are no
// longer sent: the heads would refuse them.
func (j *Journal) Grant(epoch, acked int64, workflowUID, bootID string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := []Entry{{Time: time.Now(), Epoch: epoch, Workflow: workflowUID, Boot: bootID}}
	if acked > 0 {
		lines = append(lines, Entry{Epoch: epoch, Acked: acked})
	}
	if j.region == nil {
		j.entries = nil
	}
	for _, e := range lines {
		j.learn(e)
		if err := j.write(e, true); err != nil {
			return err
		}
	}
	return nil
}

// Report numbers a report under the newest grant and stores it. It is on stable storage when Report returns; after an
// error it is in memory only.
func (j *Journal) Report(r trivet.Report) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	r.Seq = j.seq
	return j.write(Entry{Time: time.Now(), Epoch: j.grant.Epoch, Report: &r}, true)
}

// Ack records that the reports up to seq under an epoch are in the store. It need not be on stable storage: heads
// ignore repeated reports.
func (j *Journal) Ack(epoch, seq int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if epoch != j.grant.Epoch || seq <= j.acked || seq > j.seq {
		return nil
	}
	j.acked = seq
	if j.region == nil {
		j.entries = slices.DeleteFunc(j.entries, j.isAcked)
		return nil
	}
	return j.write(Entry{Epoch: epoch, Acked: seq}, false)
}

// Unacked returns the newest grant's reports that are not acknowledged, oldest first.
func (j *Journal) Unacked() []trivet.Report {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []trivet.Report
	for _, e := range j.entries {
		if e.Report != nil && e.Epoch == j.grant.Epoch && e.Report.Seq > j.acked {
			out = append(out, *e.Report)
		}
	}
	return out
}

// Settled reports whether every report of the newest grant is acknowledged.
func (j *Journal) Settled() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.acked == j.seq
}

// Entries returns all entries, oldest first.
func (j *Journal) Entries() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

// Close closes the file or device.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.region == nil {
		return nil
	}
	return j.region.close()
}

// write appends to memory and to the region; a full region is compacted. An entry that was not written is in memory
// and is written together with the next one. j.mu is held.
func (j *Journal) write(e Entry, sync bool) error {
	j.entries = append(j.entries, e)
	if j.region == nil {
		return nil
	}
	var err error
	if j.isIncomplete {
		err = j.region.rewrite(j.entries)
	} else {
		err = j.region.append(e, sync)
	}
	for step := 0; step < compactSteps && errors.Is(err, ErrFull); step++ {
		j.compact(step)
		err = j.region.rewrite(j.entries)
	}
	if j.isIncomplete = err != nil; err != nil {
		return fmt.Errorf("write journal %s: %w", j.region.file.Name(), err)
	}
	return nil
}

// compactSteps is the number of steps of compact.
const compactSteps = 3

// compact frees space in a full region: first acknowledged entries of older epochs, then all of older epochs, then
// acknowledged ones of this epoch. Unacknowledged entries of this epoch are never dropped. j.mu is held.
func (j *Journal) compact(step int) {
	acked := map[int64]int64{}
	for _, e := range j.entries {
		acked[e.Epoch] = max(acked[e.Epoch], e.Acked)
	}
	j.entries = slices.DeleteFunc(j.entries, func(e Entry) bool {
		acknowledged := e.Report != nil && e.Report.Seq <= acked[e.Epoch] || e.Acked > 0
		if e.Epoch != j.grant.Epoch {
			return acknowledged || step > 0
		}
		return step > 1 && acknowledged && e.Acked < j.acked
	})
}

func (j *Journal) isAcked(e Entry) bool {
	return e.Epoch == j.grant.Epoch && e.Report != nil && e.Report.Seq <= j.acked
}
