package client

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// maxHeads bounds the heads that a client knows.
const maxHeads = 64

// HeadState is the state of a head as a client knows it.
type HeadState string

// The states, in the order in which heads are tried.
const (
	HeadUp      HeadState = "up"      // it served the last request
	HeadUntried HeadState = "untried" // it got no request yet
	HeadUnready HeadState = "unready" // it responds that it cannot serve, or is about to stop
	HeadDown    HeadState = "down"    // it does not respond, or its certificate is not of the cluster
)

// head is one URL of a head and its state. Its fields are guarded by the set's mu.
type head struct {
	url        string
	configured bool // by the configuration; else learned
	reached    bool // it has been up
	state      HeadState
	since      time.Time
	cause      error // of its state; nil: none
	rank       uint64
	monitor    *time.Timer // nil: none
	shared     *probe      // by calls that wait for a response; nil: none runs
	delay      time.Duration
	requests   uint64
	failures   uint64
}

// heads is the set of known heads. The configured ones are never removed.
type heads struct {
	probe  func(ctx context.Context, url string) error
	ctx    context.Context // of the probes
	cancel context.CancelFunc
	probes sync.WaitGroup

	mu       sync.Mutex
	list     []*head       // guarded by mu, as all that follows; the configured ones first
	learned  string        // the list that was learned last
	spread   string        // the client's name, by which they are ranked; empty: in the order of the list
	last     string        // the URL that was tried last
	upSignal chan struct{} // closed when one comes up
	closed   bool
}

func newHeads(urls []string, probe func(ctx context.Context, url string) error) *heads {
	hs := &heads{probe: probe, upSignal: make(chan struct{})}
	hs.ctx, hs.cancel = context.WithCancel(context.Background())
	for _, u := range urls {
		hs.list = append(hs.list, &head{url: u, configured: true, state: HeadUntried, since: time.Now()})
	}
	return hs
}

// spreadBy ranks the heads by the client's name, so that many clients spread over them. It does so once.
func (hs *heads) spreadBy(name string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.spread != "" || name == "" {
		return
	}
	hs.spread = name
	for _, h := range hs.list {
		h.rank = rankOf(name, h.url)
	}
}

// isChange reports whether url is another head than the last one, for one of many clients that spread.
func (hs *heads) isChange(url string) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	was := hs.last
	hs.last = url
	return hs.spread != "" && was != "" && was != url
}

// rankOf is rendezvous hashing: the clients of a failed head spread over the others.
func rankOf(name, url string) uint64 {
	sum := fnv.New64a()
	sum.Write([]byte(url + "\x00" + name))
	x := sum.Sum64()
	x ^= x >> 32 // FNV mixes the end of its input badly into the high bits
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

// class is the class of a head in the order of attempts.
func (hs *heads) class(h *head) int {
	switch {
	case h.state == HeadUp, h.state == HeadUntried && h.configured && hs.spread == "":
		return 0
	case h.state == HeadUntried && h.configured:
		return 1
	case h.state == HeadUnready:
		return 2
	case h.configured || h.reached:
		return 3
	}
	return 4
}

// round returns the heads in the order of attempts: those that may serve; those that are down; and those that were
// learned and have not been reached yet, as they need not be reachable from here. A client that spreads tries its own
// first choice first, and so needs one connection; it has no need of the others before that one fails.
func (hs *heads) round() (likely, down, far []string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	sorted := slices.Clone(hs.list)
	slices.SortStableFunc(sorted, func(a, b *head) int {
		if c := hs.class(a); c != hs.class(b) || c > 1 {
			return c - hs.class(b)
		}
		return cmp.Compare(b.rank, a.rank)
	})
	for _, h := range sorted {
		switch hs.class(h) {
		case 3:
			down = append(down, h.url)
		case 4:
			far = append(far, h.url)
		default:
			likely = append(likely, h.url)
		}
	}
	return likely, down, far
}

func (hs *heads) find(url string) *head {
	if i := slices.IndexFunc(hs.list, func(h *head) bool { return h.url == url }); i >= 0 {
		return hs.list[i]
	}
	return nil
}

func (h *head) become(state HeadState, cause error) {
	if h.state != state {
		h.since = time.Now()
	}
	h.state, h.cause = state, cause
}

// served records a success. A read does not make an unready head ready.
func (hs *heads) served(url string, wrote bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.find(url)
	if h == nil {
		return
	}
	h.requests++
	if h.state != HeadUnready || wrote {
		hs.cameUp(h)
	}
}

// failed records a failure. Another head is used at once, and the monitor probes this one.
func (hs *heads) failed(url string, state HeadState, cause error) (wasUp bool) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.find(url)
	if h == nil {
		return false
	}
	wasUp = h.state == HeadUp
	h.requests++
	h.failures++
	h.become(state, cause)
	hs.watch(h, hs.firstDelay())
	return wasUp
}

// cameUp is called with mu held.
func (hs *heads) cameUp(h *head) {
	if h.monitor != nil {
		h.monitor.Stop()
		h.monitor = nil
	}
	if h.state == HeadUp {
		return
	}
	h.become(HeadUp, nil)
	h.reached = true
	close(hs.upSignal)
	hs.upSignal = make(chan struct{})
	for _, other := range hs.list { // those that were configured are tried when they are needed
		if other.state == HeadUntried && !other.configured {
			hs.watch(other, max(time.Second, hs.firstDelay()))
		}
	}
}

// awaitUp returns a channel that is closed when a head comes up.
func (hs *heads) awaitUp() <-chan struct{} {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.upSignal
}

// learn sets the cluster's list of its heads. A head that is not in it is removed unless it was configured.
func (hs *heads) learn(list string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if list == hs.learned || list == "" {
		return
	}
	urls, err := parseEndpoints(strings.Split(list, ","))
	if err != nil {
		return
	}
	hs.learned = list
	hs.list = slices.DeleteFunc(hs.list, func(h *head) bool {
		gone := !h.configured && !slices.Contains(urls, h.url)
		if gone && h.monitor != nil {
			h.monitor.Stop()
			h.monitor = nil
		}
		return gone
	})
	for _, u := range urls {
		if hs.find(u) == nil && len(hs.list) < maxHeads {
			hs.add(u)
		}
	}
}

func (hs *heads) add(url string) {
	h := &head{url: url, state: HeadUntried, since: time.Now()}
	if hs.spread != "" {
		h.rank = rankOf(hs.spread, url)
	}
	hs.list = append(hs.list, h)
	if slices.ContainsFunc(hs.list, func(o *head) bool { return o.state == HeadUp }) {
		hs.watch(h, max(time.Second, hs.firstDelay()))
	}
}

func (hs *heads) all() []string {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	var urls []string
	for _, h := range hs.list {
		urls = append(urls, h.url)
	}
	return urls
}

// parseEndpoints parses URLs or host:port, and returns URLs without a path.
func parseEndpoints(endpoints []string) ([]string, error) {
	var urls []string
	for _, e := range endpoints {
		if !strings.Contains(e, "://") {
			e = "https://" + e
		}
		u, err := url.Parse(e)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("endpoint %.100q: %w: want https://HOST:PORT", e, trivet.ErrInvalid)
		}
		if clean := "https://" + u.Host; !slices.Contains(urls, clean) {
			urls = append(urls, clean)
		}
	}
	if len(urls) == 0 || len(urls) > maxHeads {
		return nil, fmt.Errorf("endpoints: %w: %d endpoints; want 1 to %d", trivet.ErrInvalid, len(urls), maxHeads)
	}
	return urls, nil
}
