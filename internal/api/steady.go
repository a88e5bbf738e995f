package api

import (
	"io"
	"net/http"
	"time"
)

// stall is how long one read or write of content may take. Content may take as long as it needs while it moves; a
// connection whose cable was cut must not hold an upload until TCP gives up.
const stall = 20 * time.Second

// bodyTime is how long any other request's body may take in all.
const bodyTime = 30 * time.Second

// limitBody lets nobody hold a connection by a body that does not come, also where it is not read: the server reads what is
// left of it. What takes longer sets a deadline of its own.
func limitBody(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Time{}) // one of an earlier request on this connection
	if r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(bodyTime))
	}
}

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
	n, err := s.body.Read(b)
	if err != nil { // the answer may take longer, and the server reads on to see the client go
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	return n, err
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
