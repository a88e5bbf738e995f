package netboot

import (
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
)

// serveBlob is GET /blob/{digest}.
func (s *Server) serveBlob(w http.ResponseWriter, r *http.Request) { s.Blobs.ServeHTTP(pace(w), r) }

// serveKernel is GET /boot/kernel/{mac}/{digest}: the blob of that digest.
func (s *Server) serveKernel(w http.ResponseWriter, r *http.Request) {
	s.Blobs.ServeHTTP(pace(w), asBlob(r))
}

// serveInitrd is GET /boot/initrd/{mac}/{digest}. It is the last that a script fetches, so that a machine which has
// all of it has completed the step.
func (s *Server) serveInitrd(w http.ResponseWriter, r *http.Request) {
	p := pace(w)
	s.Blobs.ServeHTTP(p, asBlob(r))
	mac, err := trivet.CanonicalMAC(r.PathValue("mac"))
	if err != nil || r.Method != http.MethodGet || !p.complete() {
		return
	}
	if h, err := s.bootingHost(mac, r); err == nil {
		s.reached(h, trivet.StepKernel)
	}
}

func asBlob(r *http.Request) *http.Request {
	blob := r.Clone(r.Context())
	blob.URL = &url.URL{Path: "/blob/" + r.PathValue("digest")}
	return blob
}

const (
	// A slow download is not cut off as long as it progresses: each slice must be sent within sliceTime.
	sliceBytes = 4 << 20
	sliceTime  = time.Minute
	// callBytes is the size of one call to the kernel. A call that takes longer than some 20 µs loses its processor
	// to another thread (Go's sysmon), which costs more than the calls do: with 64 KiB, 1.4 times as many 256 KiB
	// files were sent in a second. Of a longer file, what follows smallFile is sent in calls of largeCall: of 8 MiB
	// files, 1.05 times as many.
	callBytes = 64 << 10
	smallFile = 256 << 10
	largeCall = 1 << 20
)

// callAt returns the size of the call that sends what follows so many bytes of a response.
func callAt(sent int64) int64 {
	if sent < smallFile {
		return callBytes
	}
	return largeCall
}

// paced bounds how slow a reader may be, and notes how a response ended. It passes files on as they are, so that
// the kernel sends them without a copy.
type paced struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int // 0 means 200
	failed  bool
}

func pace(w http.ResponseWriter) *paced {
	return &paced{ResponseWriter: w, control: http.NewResponseController(w)}
}

// complete reports whether the file was sent to its end.
func (p *paced) complete() bool { return !p.failed && p.status < http.StatusMultipleChoices }

func (p *paced) extend() { _ = p.control.SetWriteDeadline(time.Now().Add(sliceTime)) }

func (p *paced) WriteHeader(status int) {
	p.status = status
	p.ResponseWriter.WriteHeader(status)
}

func (p *paced) Write(b []byte) (int, error) {
	p.extend()
	n, err := p.ResponseWriter.Write(b)
	p.failed = p.failed || err != nil
	return n, err
}

// ReadFrom sends a file in pieces. net/http uses sendfile(2) for a file in one LimitedReader, not in two.
func (p *paced) ReadFrom(r io.Reader) (sent int64, err error) {
	whole, ok := r.(*io.LimitedReader)
	if !ok {
		whole = &io.LimitedReader{R: r, N: 1<<63 - 1}
	}
	for extended := int64(-sliceBytes); whole.N > 0 && err == nil; {
		if sent-extended >= sliceBytes {
			p.extend()
			extended = sent
		}
		piece := &io.LimitedReader{R: whole.R, N: min(whole.N, callAt(sent))}
		asked := piece.N
		var n int64
		n, err = io.Copy(p.ResponseWriter, piece)
		sent, whole.N = sent+n, whole.N-n
		if n < asked {
			break // the end of the file, or an error
		}
	}
	p.failed = p.failed || err != nil
	return sent, err
}

// Unwrap is for [http.ResponseController].
func (p *paced) Unwrap() http.ResponseWriter { return p.ResponseWriter }
