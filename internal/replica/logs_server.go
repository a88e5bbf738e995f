package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/peer"
)

// The endpoints for logs.
const (
	partsPath = "logs/parts"
	readPath  = "logs/read"
)

type (
	// logRequest names a run, or an offset in the log of one attempt of one of its actions.
	logRequest struct {
		Workflow string `json:"workflow"`
		trivet.LogKey
		Offset int64 `json:"offset,omitempty"`
	}
	// logResponse is the text from an offset.
	logResponse struct {
		Text []byte `json:"text"`
	}
)

// Register adds the endpoints by which full heads read what this head has of a run's log.
func (l *Logs) Register(s *peer.Server) {
	for path, do := range map[string]func(*logRequest) (any, error){partsPath: l.serveParts, readPath: l.serveRead} {
		s.Register(peer.Endpoint{Path: path, Access: peer.FullMember, Handle: logHandler(do)})
	}
}

func logHandler(do func(*logRequest) (any, error)) func(*http.Request, auth.Peer, []byte) (any, error) {
	return func(_ *http.Request, _ auth.Peer, body []byte) (any, error) {
		var req logRequest
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, fmt.Errorf("logs: %w: %w", trivet.ErrInvalid, err)
		}
		return do(&req)
	}
}

func (l *Logs) serveParts(req *logRequest) (any, error) { return l.Store.Parts(req.Workflow) }

func (l *Logs) serveRead(req *logRequest) (any, error) {
	text := make([]byte, LogChunkBytes)
	n, err := l.Store.Read(req.Workflow, req.LogKey, req.Offset, text)
	if errors.Is(err, trivet.ErrNotFound) { // it was just removed
		err = nil
	}
	return logResponse{text[:n]}, err
}
