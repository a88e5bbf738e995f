package api

import (
	"time"

	"github.com/trivet-project/trivet/internal/limit"
)

// SetWriteTimeout sets how long a client may take to read, before the handler serves.
func (h *Handler) SetWriteTimeout(d time.Duration) { h.writeTimeout = d }

// SetUnsent sets what pages and changes may use that wait for their clients, before the handler serves.
func (h *Handler) SetUnsent(bytes int64) { h.unsent = unsent{limit.NewPool(bytes, bytes)} }

// SetScan sets how many records are read for one page of a list, before the handler serves.
func (h *Handler) SetScan(n int) { h.scan = n }

// SendBytes is what a page uses while it is sent.
const SendBytes = sendBytes
