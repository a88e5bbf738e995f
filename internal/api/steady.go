package api

import (
	"io"
	"net/http"
	"time"
)

// stall is how long one read or write of content may take. Content may take as long as it needs while it moves; a
// connection whose cable was cut must not hold an upload until TCP gives up.
const stall = 20 * time.Second

// steady reads a request's body as long as it moves.
func steady(w http.ResponseWriter, r *http.Request) io.Reader {
	return &steadyReader{r.Body, http.NewResponseController(w)}
}

type steadyReader struct {
	body io.Reader
	conn *http.ResponseController
}

func (s *steadyReader) Read(b []byte) (int, error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(stall)) // where there is no deadline to set, there is no connection to hold
	return s.body.Read(b)
}

// steadyWriter writes an answer as long as it moves.
type steadyWriter struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (s *steadyWriter) Write(b []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(stall))
	return s.ResponseWriter.Write(b)
}
