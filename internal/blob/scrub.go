package blob

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// A scrub verifies all blobs of a store, one after the other in order of digest. How far it is, is in a file of the
// directory, so that a restart does not begin again.

const (
	scrubFile = "scrub.json"
	// scrubEvery is the time from the beginning of a pass to that of the next one, at least.
	scrubEvery = 7 * 24 * time.Hour
)

// scrub is the file's content. One that cannot be read begins another pass.
type scrub struct {
	Begun time.Time `json:"begun"`           // of this pass
	After string    `json:"after,omitempty"` // the digest that was verified last
}

// NextScrub returns the blob that is to be verified next; nil: none for the time that is returned.
func (s *Store) NextScrub(now time.Time) (next *Digest, wait time.Duration, err error) {
	held, err := s.Held()
	if err != nil {
		return nil, 0, err
	}
	at := s.readScrub()
	due := at.Begun.Add(scrubEvery)
	if next := s.heldAfter(held, at.After); next != nil && !at.Begun.IsZero() {
		return next, 0, nil
	}
	if now.Before(due) && !now.Before(at.Begun) { // a clock that was set back begins another pass
		return nil, due.Sub(now), nil
	}
	if err := s.writeScrub(scrub{Begun: now}); err != nil {
		return nil, 0, err
	}
	return s.heldAfter(held, ""), scrubEvery, nil
}

// Scrubbed notes that a blob was verified.
func (s *Store) Scrubbed(d Digest) error {
	at := s.readScrub()
	at.After = d.String()
	return s.writeScrub(at)
}

// heldAfter returns the first complete blob after a digest.
func (s *Store) heldAfter(held []Held, digest string) *Digest {
	for _, h := range held {
		if h.Digest.String() > digest && s.Has(h.Digest) {
			return &h.Digest
		}
	}
	return nil
}

func (s *Store) readScrub() (at scrub) {
	text, err := os.ReadFile(filepath.Join(s.dir, scrubFile))
	if err != nil || json.Unmarshal(text, &at) != nil {
		return scrub{}
	}
	return at
}

func (s *Store) writeScrub(at scrub) error {
	text, err := json.Marshal(at)
	if err == nil {
		err = s.replace(scrubFile, text)
	}
	if err != nil {
		return fmt.Errorf("note the position of the scrub: %w", err)
	}
	return nil
}
