package heads

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// logAsk names a run, or a place in the log of one try of one of its actions; logText is what is there.
type (
	logAsk struct {
		Workflow string `json:"workflow"`
		Action   string `json:"action,omitempty"`
		Attempt  int    `json:"attempt,omitempty"`
		Offset   int64  `json:"offset,omitempty"`
	}
	logText struct {
		Text []byte `json:"text"`
	}
)

// logRoutes let full heads ask what this one has of a run's log. Nobody is asked on their behalf.
func (d *Door) logRoutes() {
	for path, do := range map[string]func(*logAsk) (any, error){"parts": d.logParts, "read": d.logRead} {
		d.mux.HandleFunc("POST "+Prefix+"logs/"+path, d.answered(d.fullHead, func(_ *http.Request, _ auth.Peer, body []byte) (any, error) {
			var ask logAsk
			if err := json.Unmarshal(body, &ask); err != nil {
				return nil, fmt.Errorf("logs: %w: %w", trivet.ErrInvalid, err)
			}
			return do(&ask)
		}))
	}
}

func (d *Door) logParts(ask *logAsk) (any, error) { return d.Logs.Store.Parts(ask.Workflow) }

func (d *Door) logRead(ask *logAsk) (any, error) {
	text := make([]byte, LogChunk)
	n, err := d.Logs.Store.Read(ask.Workflow, ask.Action, ask.Attempt, ask.Offset, text)
	if errors.Is(err, trivet.ErrNotFound) { // it was just removed
		err = nil
	}
	return logText{text[:n]}, err
}
