package client

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
)

// maxHeads bounds the heads that a client knows.
const maxHeads = 64

// heads is the set of heads and which of them served last. A call begins there and goes round.
type heads struct {
	configured []string

	mu    sync.Mutex
	urls  []string // guarded by mu; never empty
	first int      // guarded by mu; the one that served last
}

func newHeads(urls []string) *heads { return &heads{configured: urls, urls: urls} }

// round gives all heads in the order to try them.
func (h *heads) round() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Concat(h.urls[h.first:], h.urls[:h.first])
}

func (h *heads) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.urls)
}

// served notes who answered; failed that somebody else should be asked first.
func (h *heads) served(head string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.urls, head); i >= 0 {
		h.first = i
	}
}

func (h *heads) failed(head string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.urls[h.first] == head {
		h.first = (h.first + 1) % len(h.urls)
	}
}

func (h *heads) learn(urls []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.urls[h.first]
	all := slices.Clone(urls)
	for _, u := range append([]string{now}, h.configured...) {
		if !slices.Contains(all, u) {
			all = append(all, u)
		}
	}
	h.urls = all[:min(len(all), maxHeads)]
	h.first = max(slices.Index(h.urls, now), 0)
}

// parseEndpoints takes URLs or host:port, and gives URLs without a path.
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
		return nil, fmt.Errorf("endpoints: %w: %d given; 1 to %d", trivet.ErrInvalid, len(urls), maxHeads)
	}
	return urls, nil
}
