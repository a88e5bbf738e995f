package bmc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
)

// maxLogServices bounds the logs of a system or manager that are read to find the event log.
const maxLogServices = 8

// Events implements [EventLog].
func (b *redfishBMC) Events(ctx context.Context, limit int) (Events, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	b.mu.Lock()
	defer b.mu.Unlock()
	var events Events
	service, err := b.findLog(ctx)
	if err == nil {
		events.Now = redfishTime(service.DateTime)
		var entries []logEntry
		entries, err = b.newest(ctx, service.Entries.ID, limit)
		for _, e := range entries {
			events.Entries = append(events.Entries, e.entry())
		}
	}
	return events, fail("read event log of", b.cfg, redfishHint(err), err)
}

// findLog returns the event log of the system, or else of its manager.
func (b *redfishBMC) findLog(ctx context.Context) (logService, error) {
	var owner logOwner
	if _, err := b.wire.call(ctx, http.MethodGet, b.system, "", nil, &owner); err != nil {
		return logService{}, err
	}
	service, err := b.logOf(ctx, owner.LogServices.ID)
	if managers := owner.Links.ManagedBy; errors.Is(err, ErrNoEventLog) && len(managers) > 0 {
		var manager logOwner
		if _, err := b.wire.call(ctx, http.MethodGet, managers[0].ID, "", nil, &manager); err != nil {
			return logService{}, err
		}
		return b.logOf(ctx, manager.LogServices.ID)
	}
	return service, err
}

// logOf returns the event log among the logs of a system or manager. Those whose name is that of one are read first.
func (b *redfishBMC) logOf(ctx context.Context, link string) (logService, error) {
	var logs collection
	if link == "" {
		return logService{}, ErrNoEventLog
	}
	if _, err := b.wire.call(ctx, http.MethodGet, link, "", nil, &logs); err != nil {
		return logService{}, err
	}
	slices.SortStableFunc(logs.Members, byLogRank)
	failed := ErrNoEventLog
	for _, m := range logs.Members[:min(len(logs.Members), maxLogServices)] {
		var s logService
		if _, err := b.wire.call(ctx, http.MethodGet, m.ID, "", nil, &s); err != nil {
			failed = err
		} else if s.Entries.ID != "" && s.hasEvents(logRank(m.ID)) {
			return s, nil
		}
	}
	return logService{}, failed
}

// The ranks of logs by their names.
const (
	rankHardware = iota // the log of the hardware: SEL, or HPE's IML
	rankEvents
	rankOther // such as dumps and the console of the host
)

func byLogRank(x, y link) int { return logRank(x.ID) - logRank(y.ID) }

func logRank(link string) int {
	name := strings.ToLower(path.Base(link))
	switch {
	case strings.Contains(name, "sel"), name == "iml":
		return rankHardware
	case strings.Contains(name, "event"), strings.HasPrefix(name, "log"):
		return rankEvents
	}
	return rankOther
}

// newest returns the newest entries of a log, the oldest first. Services list the newest ones first or last, and of a
// long log only the first part, so that the last one is read then.
func (b *redfishBMC) newest(ctx context.Context, link string, limit int) ([]logEntry, error) {
	var page logPage
	if _, err := b.wire.call(ctx, http.MethodGet, link, "", nil, &page); err != nil {
		return nil, err
	}
	backwards, err := b.newestFirst(ctx, page.Members)
	if err == nil && !backwards && page.Count > len(page.Members) {
		query := fmt.Sprintf("$skip=%d&$top=%d", max(page.Count-limit, 0), limit)
		page = logPage{}
		err = b.wire.query(ctx, link, query, &page)
	}
	if err != nil {
		return nil, err
	}
	entries := []logEntry(page.Members)
	if !backwards {
		slices.Reverse(entries)
	}
	entries = entries[:min(len(entries), limit)]
	for i := range entries {
		if err := b.readEntry(ctx, &entries[i]); err != nil {
			entries = entries[:i] // the newest ones
			slices.Reverse(entries)
			return entries, err
		}
	}
	slices.Reverse(entries)
	return entries, nil
}

// newestFirst reports whether the newest entries are the first ones, by those that have a time.
func (b *redfishBMC) newestFirst(ctx context.Context, entries []logEntry) (bool, error) {
	if len(entries) < 2 {
		return false, nil
	}
	first, last := &entries[0], &entries[len(entries)-1]
	if err := errors.Join(b.readEntry(ctx, first), b.readEntry(ctx, last)); err != nil {
		return false, err
	}
	var times []time.Time
	for _, e := range entries {
		if t := redfishTime(e.Created); !t.IsZero() {
			times = append(times, t)
		}
	}
	return len(times) > 0 && times[0].After(times[len(times)-1]), nil
}

// readEntry reads an entry of which the service lists only the link.
func (b *redfishBMC) readEntry(ctx context.Context, e *logEntry) error {
	if e.Created != "" || e.Message != "" {
		return nil
	}
	if e.ID == "" {
		return fmt.Errorf("%w: an entry of the event log without a link", trivet.ErrInvalid)
	}
	_, err := b.wire.call(ctx, http.MethodGet, e.ID, "", nil, e)
	return err
}
