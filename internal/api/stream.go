package api

import (
	"io"
	"net/http"
	"time"
)

// stall bounds one read or write of content. Content may take as long as it needs while it moves; a
// connection whose cable was cut must not hold an upload until TCP gives up.
const stall = 20 * time.Second

// limitBody bounds how long a request body may hold a connection, also where it is not read: the server reads what is
// left of it. Handlers that need longer set a deadline of their own.
func limitBody(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Time{}) // one of an earlier request on this connection
	if r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(unknownBodyTime))
	}
}

// streamReader returns a request's body, whose reads fail after stall.
func streamReader(w http.ResponseWriter, r *http.Request) io.Reader {
	return &stallReader{r.Body, http.NewResponseController(w)}
}

type stallReader struct {
	body io.Reader
	conn *http.ResponseController
}

func (s *stallReader) Read(b []byte) (int, error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(stall)) // without a deadline there is no connection to hold
	n, err := s.body.Read(b)
	if err != nil { // the response may take longer, and the server reads on to detect a disconnect
		_ = s.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// streamWriter writes a response, each write bounded by stall.
type streamWriter struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func (s *streamWriter) Write(b []byte) (int, error) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(stall))
	return s.ResponseWriter.Write(b)
}
