package api

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/limit"
)

// caller is the authenticated account of a request.
type caller struct {
	account string
	role    trivet.AccountRole
	token   *trivet.Token
}

// authenticate verifies a request's API token against the records of token and account.
func (h *Handler) authenticate(r *http.Request) (*caller, error) {
	if r.TLS == nil {
		return nil, fmt.Errorf("%w: the API is served over TLS only", trivet.ErrForbidden)
	}
	header := r.Header.Get("Authorization")
	plain, ok := strings.CutPrefix(header, "Bearer ")
	if !ok {
		return nil, &trivet.Error{Op: "authenticate", Err: fmt.Errorf("%w: no API token", trivet.ErrUnauthenticated),
			Hint: "send Authorization: Bearer trivet_..."}
	}
	c, err := h.checkToken(plain)
	if errors.Is(err, trivet.ErrNotFound) { // another head may have issued it just now
		if err := h.freshForUnknown(r); err != nil {
			return nil, err
		}
		c, err = h.checkToken(plain)
	}
	if errors.Is(err, trivet.ErrNotFound) {
		err = fmt.Errorf("API token: %w: %v", trivet.ErrUnauthenticated, err)
	}
	if errors.Is(err, trivet.ErrUnauthenticated) {
		h.metrics.refused.Inc()
		h.refusals.note(h, r, err)
	}
	if err == nil {
		limit.Of(r.Context()).Recognise()
	}
	return c, err
}

// checkToken returns the caller of a token. It fails with ErrNotFound if this head knows no such token or account.
func (h *Handler) checkToken(plain string) (*caller, error) {
	id, err := auth.ParseToken(plain)
	if err != nil {
		return nil, err
	}
	t, err := h.Fleet.Tokens.Get(id)
	if err != nil {
		return nil, err
	}
	if err := auth.CheckToken(plain, t.Spec.Hash); err != nil {
		return nil, err
	}
	if now := h.Now(); !t.Spec.Expires.IsZero() && !now.Before(t.Spec.Expires) {
		return nil, fmt.Errorf("API token %s: %w: expired at %s; it is %s by this head's clock", id,
			trivet.ErrUnauthenticated,
			t.Spec.Expires.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	a, err := h.Fleet.Accounts.Get(t.Spec.Account)
	if err != nil {
		return nil, err
	}
	if a.UID != t.Spec.AccountUID {
		return nil, &trivet.Error{Op: "get", Kind: "Account", Name: a.Name,
			Err: fmt.Errorf("%w: the token is of a deleted account of that name", trivet.ErrNotFound)}
	}
	return &caller{account: a.Name, role: a.Spec.Role, token: t}, nil
}

// refusals bounds the log of refused tokens: each address is logged at its first failure and then at every doubling.
// No one is locked out, since behind a balancer all callers have one address, and 256 random bits need no lockout.
type refusals struct {
	mu    sync.Mutex
	count map[string]int // guarded by mu; by address, at most maxRefusals
}

const maxRefusals = 1024

func (s *refusals) note(h *Handler, r *http.Request, err error) {
	host, _, splitErr := net.SplitHostPort(r.RemoteAddr)
	if splitErr != nil {
		host = r.RemoteAddr
	}
	s.mu.Lock()
	if s.count == nil || len(s.count) >= maxRefusals {
		s.count = map[string]int{}
	}
	s.count[host]++
	n := s.count[host]
	s.mu.Unlock()
	if n&(n-1) == 0 {
		h.Log.Warn("a token was refused", "from", host, "times", n, "error", err, "request",
			cmp.Or(requestID(r.Context()), "-"))
	}
}
