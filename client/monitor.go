package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
)

// A failed head is probed by its monitor, with a delay that doubles, while calls go to the others. When it
// responds again it returns to its old place, so that clients spread over the heads as before. A timer waits; a
// goroutine runs only during a probe.

// Delays of monitors. Clients that spread over the heads are many, and must not all return to a head at once.
const (
	monitorMin       = 100 * time.Millisecond
	monitorMax       = 10 * time.Second
	monitorMinSpread = 5 * time.Second
	monitorMaxSpread = time.Minute
)

func (hs *heads) firstDelay() time.Duration {
	if hs.spread != "" {
		return monitorMinSpread
	}
	return monitorMin
}

func (hs *heads) nextDelay(d time.Duration) time.Duration {
	if hs.spread != "" {
		return min(2*d, monitorMaxSpread)
	}
	return min(2*d, monitorMax)
}

// watch starts the monitor of a head if it has none. It is called with mu held.
func (hs *heads) watch(h *head, delay time.Duration) {
	if h.monitor != nil || hs.closed {
		return
	}
	h.delay = delay
	h.monitor = time.AfterFunc(jitter(delay), func() { hs.check(h) })
}

// jitter returns a random duration between half of d and one and a half of it.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// check asks a head once whether it is ready.
func (hs *heads) check(h *head) {
	hs.mu.Lock()
	monitor := h.monitor
	if hs.closed || monitor == nil {
		hs.mu.Unlock()
		return
	}
	hs.probes.Add(1)
	hs.mu.Unlock()
	defer hs.probes.Done()

	err := hs.probe(hs.ctx, h.url)

	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.closed || h.monitor != monitor { // a call reached it, or it was removed
		return
	}
	if err == nil {
		hs.cameUp(h)
		return
	}
	h.become(stateAfter(err), err)
	h.delay = hs.nextDelay(h.delay)
	monitor.Reset(jitter(h.delay))
}

// probe is one probe of a head, whose result several calls await.
type probe struct {
	done   chan struct{} // closed at its end
	silent bool          // the head did not respond; valid when done is closed
}

// isSilent reports whether a head does not respond to a probe either, or false when ctx ends before that is known.
// Calls that wait at the same time share one probe: a thousand of them do not add a thousand connections to a busy
// head.
func (hs *heads) isSilent(ctx context.Context, url string) bool {
	p := hs.sharedProbe(url)
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return p.silent && ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// sharedProbe returns the probe of a head that runs, and begins one if there is none.
func (hs *heads) sharedProbe(url string) *probe {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h := hs.find(url)
	if h == nil || hs.closed {
		return nil
	}
	if h.shared == nil {
		p := &probe{done: make(chan struct{})}
		h.shared = p
		hs.probes.Go(func() {
			ctx, cancel := context.WithTimeout(hs.ctx, workingProbeTimeout)
			defer cancel()
			err := hs.probe(ctx, url)
			hs.mu.Lock()
			h.shared = nil
			hs.mu.Unlock()
			p.silent = err != nil && stateAfter(err) == HeadDown
			close(p.done)
		})
	}
	return h.shared
}

func (hs *heads) close() {
	hs.mu.Lock()
	hs.closed = true
	for _, h := range hs.list {
		if h.monitor != nil {
			h.monitor.Stop()
			h.monitor = nil
		}
	}
	hs.mu.Unlock()
	hs.cancel()
	hs.probes.Wait()
}

// newProbe returns the probe of monitors: /readyz, over a connection of its own. Any response that is
// not a head's error is enough, since a balancer may not forward the request.
func newProbe(tlsConfig *tls.Config) func(ctx context.Context, url string) error {
	tlsConfig = tlsConfig.Clone()
	tlsConfig.NextProtos = []string{"http/1.1"}
	c := &http.Client{
		Transport: &http.Transport{
			Proxy:             http.ProxyFromEnvironment,
			DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
			TLSClientConfig:   tlsConfig,
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context, url string) error {
		ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, errSilent)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("probe: %w: %w", trivet.ErrInvalid, err)
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode >= 500 {
			return readProblem(resp)
		}
		_, _ = io.CopyN(io.Discard, resp.Body, 1<<10)
		return resp.Body.Close()
	}
}
