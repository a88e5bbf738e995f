package api

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// Bytes of bodies that the head holds at the same time: in total and for one address.
const (
	maxUnknownBodies   = 32 << 20 // of callers that are not recognised
	maxAddressUnknown  = 4 << 20
	maxKnownBodies     = 512 << 20
	maxAddressKnown    = 64 << 20
	unknownBodyTime    = 10 * time.Second // to receive the body of one that is not recognised
	recognisedBodyTime = 30 * time.Second
)

// bodies bounds the memory for requests: a body is read only after its space was taken.
type bodies struct{ unknown, known *limit.Pool }

func newBodies() bodies {
	return bodies{limit.NewPool(maxUnknownBodies, maxAddressUnknown), limit.NewPool(maxKnownBodies, maxAddressKnown)}
}

// take takes the space for a request's body until it was served.
func (b bodies) take(r *http.Request, n int64) error {
	caller, pool := limit.Of(r.Context()), b.unknown
	if about(r.Context()).account != "" {
		pool = b.known
	}
	giveBack := pool.Take(caller.Address(), n)
	if giveBack == nil {
		return fmt.Errorf("read request: %w: this head receives too many requests", trivet.ErrUnavailable)
	}
	about(r.Context()).giveBack = giveBack
	return nil
}

// readBody reads a request's body of at most so many bytes. It is called once for a request.
func (h *Handler) readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	size := r.ContentLength
	if size < 0 { // not known yet
		size = most
	}
	if size > most {
		return nil, fmt.Errorf("read request: %w: over %d bytes", trivet.ErrTooLarge, most)
	}
	if err := h.bodies.take(r, size); err != nil {
		return nil, err
	}
	conn := http.NewResponseController(w)
	if about(r.Context()).account != "" {
		_ = conn.SetReadDeadline(time.Now().Add(recognisedBodyTime)) // without a connection there is nothing to bound
	}
	var data bytes.Buffer
	if r.ContentLength > 0 {
		data.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := data.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return nil, fmt.Errorf("read request: %w: over %d bytes", trivet.ErrTooLarge, most)
	}
	if err != nil {
		return nil, fmt.Errorf("read request: %w: %w", trivet.ErrInvalid, err)
	}
	_ = conn.SetReadDeadline(time.Time{}) // the response may take longer
	return data.Bytes(), nil
}
