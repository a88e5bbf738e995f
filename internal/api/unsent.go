package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// Clients that do not read, or read slowly, make a head hold what it sends. So a write that is not read in time ends
// the response, and what all responses hold is bounded.

const (
	// writeTimeout bounds each write of a watch or response to a client that does not read.
	writeTimeout = 30 * time.Second
	// maxUnsent and maxAddressUnsent bound, in bytes, what the pages and changes use that wait for their clients.
	maxUnsent, maxAddressUnsent = 256 << 20, 64 << 20
)

// errUnread ends a response.
var errUnread = errors.New("the client did not read the response in time")

// unsent is the space for what was not read yet.
type unsent struct{ *limit.Pool }

// take returns the function that gives the space back; nil if there is none.
func (u unsent) take(r *http.Request, bytes int) (giveBack func()) {
	return u.Take(limit.Of(r.Context()).Address(), int64(bytes))
}

func errUnsent(op string) error {
	return fmt.Errorf("%s: %w: too many clients of this head read slowly", op, trivet.ErrUnavailable)
}

// mustRead makes the writes of a response fail that the client does not read by the time that is returned.
func (h *Handler) mustRead(w http.ResponseWriter) (until time.Time) {
	until = time.Now().Add(h.writeTimeout)
	_ = http.NewResponseController(w).SetWriteDeadline(until) // without one there is no connection to hold
	return until
}

// readBy returns the error of a write, which is errUnread if its time has passed. HTTP/2 has no other sign of that.
func readBy(until time.Time, err error) error {
	if err != nil && !time.Now().Before(until) {
		return errUnread
	}
	return err
}
