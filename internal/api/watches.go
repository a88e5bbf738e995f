package api

import (
	"fmt"

	"github.com/trivet-project/trivet"
)

// enterWatch counts a watch or followed log, and returns the function that ends it.
func (h *Handler) enterWatch() (leave func(), err error) {
	select {
	case <-h.drain:
		return nil, fmt.Errorf("watch: %w: this head is about to stop", trivet.ErrUnavailable)
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
		return nil, fmt.Errorf("watch: %w: %d watches are open at this head", trivet.ErrUnavailable, maxWatches)
	}
}
