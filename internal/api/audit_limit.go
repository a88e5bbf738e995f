package api

import (
	"sync"
	"time"
)

// auditLimit bounds the entries of requests that change nothing: refused ones, of each account, and reads.
type auditLimit struct {
	mu       sync.Mutex
	accounts map[string]*countedRequests // guarded by mu; by account: of refused requests, and of reads
	reads    map[string]time.Time        // guarded by mu; when a read was recorded last
}

// countedRequests counts those of one account.
type countedRequests struct {
	begin    time.Time // of the current interval
	recorded int       // in this interval
	omitted  int       // since the last one that was recorded
}

const (
	// maxUnchanged is how many refused requests of an account, and how many of its reads, one head records in each
	// interval: they would displace the entries of changes.
	maxUnchanged      = 20
	unchangedInterval = 10 * time.Minute
	readInterval      = time.Minute
	// maxAuditKeys bounds the accounts and reads that are counted.
	maxAuditKeys = 4096
)

// allow reports whether a request of an account that changes nothing is recorded, and how many were omitted before it.
func (l *auditLimit) allow(account string, now time.Time) (omitted int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.accounts == nil || len(l.accounts) >= maxAuditKeys {
		l.accounts = map[string]*countedRequests{}
	}
	a := l.accounts[account]
	if a == nil {
		a = &countedRequests{begin: now}
		l.accounts[account] = a
	}
	if now.Sub(a.begin) >= unchangedInterval {
		a.begin, a.recorded = now, 0
	}
	if a.recorded >= maxUnchanged {
		a.omitted++
		return 0, false
	}
	omitted, a.omitted = a.omitted, 0
	a.recorded++
	return omitted, true
}

// first reports whether a read was not recorded within the last interval.
func (l *auditLimit) first(read string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last, ok := l.reads[read]; ok && now.Sub(last) < readInterval {
		return false
	}
	if l.reads == nil || len(l.reads) >= maxAuditKeys {
		l.reads = map[string]time.Time{}
	}
	l.reads[read] = now
	return true
}
