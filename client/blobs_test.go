package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// A request that has ended does not read the content, which the next request sends: net/http may close and read a body
// after it has returned.
func TestEndedRequestReadsNothing(t *testing.T) {
	content := strings.NewReader("content")
	reading, more := make(chan bool), make(chan bool)
	body := &countingReader{r: slow{content, reading, more}}
	read := make(chan error)
	go func() {
		_, err := body.Read(make([]byte, 3))
		read <- err
	}()
	<-reading
	stopped := make(chan bool)
	go func() {
		body.stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		t.Error("the request ended during a read")
	case <-time.After(50 * time.Millisecond):
	}
	more <- true
	if err := <-read; err != nil {
		t.Error(err)
	}
	<-stopped
	if n, err := body.Read(make([]byte, 3)); n != 0 || !errors.Is(err, errRequestEnded) || content.Len() != 4 {
		t.Errorf("%d bytes, %v; %d of 4 are left", n, err, content.Len())
	}
}

// slow waits in each read.
type slow struct {
	io.Reader
	reading, more chan bool
}

func (s slow) Read(b []byte) (int, error) {
	s.reading <- true
	<-s.more
	return s.Reader.Read(b)
}
