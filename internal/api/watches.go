package api

import (
	"fmt"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// enterWatch counts a watch or followed log, and returns the function that ends it.
func (h *Handler) enterWatch(r *http.Request) (leave func(), err error) {
	select {
	case <-h.drain:
		return nil, fmt.Errorf("watch: %w: this head is about to stop", trivet.ErrUnavailable)
	default:
	}
	giveBack := h.watches.Take(limit.Of(r.Context()).Address(), 1)
	if giveBack == nil {
		return nil, fmt.Errorf("watch: %w: too many watches are open at this head", trivet.ErrUnavailable)
	}
	h.metrics.watches.Inc()
	return func() {
		h.metrics.watches.Dec()
		giveBack()
	}, nil
}
