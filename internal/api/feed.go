package api

import (
	"fmt"

	"github.com/trivet-project/trivet"
)

// enterFeed counts a feed or followed log, and gives what ends the count.
func (h *Handler) enterFeed() (leave func(), err error) {
	select {
	case <-h.drain:
		return nil, fmt.Errorf("follow: %w: this head is about to stop", trivet.ErrUnavailable)
	default:
	}
	select {
	case h.watches <- struct{}{}:
		h.metrics.watches.Inc()
		return func() {
			h.metrics.watches.Dec()
			<-h.watches
		}, nil
	default:
		return nil, fmt.Errorf("follow: %w: %d feeds are open at this head", trivet.ErrUnavailable, maxWatches)
	}
}
