package store

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/keyring"
)

// refusals are the values of the copy that were refused, and raise the alarm.
type refusals struct {
	logger  *slog.Logger
	metrics *metrics

	mu    sync.Mutex
	count int // values in the copy that are refused; guarded by mu
	noted int // since the start; guarded by mu
}

// A party that floods the store with values that are refused gets few lines of the log.
const (
	loggedRefusals = 16
	everyRefusals  = 1000
)

// note counts a value of the copy that is refused, and logs it.
func (r *refusals) note(e *entry) {
	if !e.refused() {
		return
	}
	r.mu.Lock()
	r.count++
	r.metrics.refused.Set(float64(r.count))
	r.mu.Unlock()
	r.log(e)
}

// log logs a value that is refused.
func (r *refusals) log(e *entry) {
	if !e.refused() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted++
	r.metrics.refusals.Inc()
	if r.noted <= loggedRefusals || r.noted%everyRefusals == 0 {
		r.logger.Error("refused a stored value: it was forged, replayed or damaged", "key", e.key, "revision", e.rev,
			"refusals", r.noted, "error", e.err)
	}
}

// forget forgets a value that was replaced or deleted.
func (r *refusals) forget(e *entry) {
	if e == nil || !e.refused() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count--
	r.metrics.refused.Set(float64(r.count))
}

// reset forgets all values: the copy is loaded.
func (r *refusals) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count = 0
	r.metrics.refused.Set(0)
}

// Refused returns how many values of this head's copy do not authenticate.
func (s *Store) Refused() int {
	s.refusals.mu.Lock()
	defer s.refusals.mu.Unlock()
	return s.refusals.count
}

// checkKeys returns an error if this head can read none of the values that there are: it has other keys.
func (s *Store) checkKeys(snap *snapshot) error {
	var missing []string
	n := 0
	for e := range snap.under(prefix, "") {
		n++
		if !e.refused() {
			return nil
		}
		if id := e.sealed.String(); errors.Is(e.err, keyring.ErrKey) && !slices.Contains(missing, id) {
			missing = append(missing, id)
		}
	}
	if n == 0 {
		return nil
	}
	return &trivet.Error{Op: "load the store", Hint: "restore keys/store.keys in the data directory from a backup, or " +
		"let this head join again: --rejoin --join URL --token TOKEN",
		Err: fmt.Errorf("%w: it has %d values and none authenticates with this head's key, %s; they are under %s",
			ErrRefused, n, s.opts.Cipher.First(), strings.Join(missing, ", "))}
}
