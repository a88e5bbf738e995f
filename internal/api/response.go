package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/trivet-project/trivet/internal/apitypes"
)

// respond writes a value as JSON.
func respond(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode response: %w", err)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(data, '\n')) // the client may have disconnected
	return nil
}

// fail writes an error as a Problem.
func fail(w http.ResponseWriter, r *http.Request, err error) int {
	status, p := apitypes.NewProblem(err)
	p.RequestID = requestID(r.Context())
	switch status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="trivet"`)
	case http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	if respond(w, status, p) != nil {
		w.WriteHeader(http.StatusInternalServerError)
	}
	return status
}
