package netboot

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// routes are all requests of the boot server. Any host on the boot network may send them, so that none changes a
// record but the phone-home, which carries a signed token and may come from another network.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") })
	mux.HandleFunc("GET /ipxe/{file}", s.served(s.serveProgram))
	mux.HandleFunc("GET /boot/script/{mac}", s.served(s.serveScript))
	mux.HandleFunc("GET /boot/kernel/{mac}/{digest}", s.served(s.serveKernel))
	mux.HandleFunc("GET /boot/initrd/{mac}/{digest}", s.served(s.serveInitrd))
	mux.HandleFunc("GET /blob/{digest}", s.served(s.serveBlob))
	for _, version := range []string{"latest", "2009-04-04"} {
		mux.HandleFunc("GET /"+version+"/meta-data/{path...}", s.served(s.serveMetadata))
		mux.HandleFunc("GET /"+version+"/user-data", s.served(s.serveUserData))
	}
	mux.HandleFunc("POST /phone-home/{token}", s.servePhoneHome)
	return mux
}

// ServeHTTP serves the requests of machines.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(answerTime)) // extended for blobs as they progress
	if r.ContentLength != 0 {
		// also of a body that no handler reads: net/http reads the rest
		_ = conn.SetReadDeadline(time.Now().Add(bodyTime))
	}
	s.mux.ServeHTTP(w, r)
}

// Bounds of a request.
const (
	maxHeader  = 8 << 10
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	bodyTime   = 10 * time.Second
	answerTime = 30 * time.Second
)

// HTTPServer returns a server for ServeHTTP within these bounds. It has no ReadTimeout, which would end the context
// of requests whose answer takes longer.
func (s *Server) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           limit.Handler(s),
		ConnContext:       limit.Context,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text) // a client that went away asks again
}

// fail answers a request with an error. Its text says no more than the client may know.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "internal error, see the log of this head"
	switch {
	case errors.Is(err, trivet.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		status, text = http.StatusNotFound, "not found"
	case errors.Is(err, trivet.ErrUnauthenticated):
		status, text = http.StatusUnauthorized, err.Error()
	case errors.Is(err, trivet.ErrForbidden):
		status, text = http.StatusForbidden, err.Error()
	case errors.Is(err, trivet.ErrInvalid):
		status, text = http.StatusBadRequest, err.Error()
	case errors.Is(err, trivet.ErrFenced), errors.Is(err, trivet.ErrConflict):
		status, text = http.StatusConflict, err.Error()
	case errors.Is(err, trivet.ErrUnavailable), errors.Is(err, trivet.ErrUnknown), errors.Is(err, r.Context().Err()):
		status, text = http.StatusServiceUnavailable, "unavailable, try again"
		w.Header().Set("Retry-After", "2")
	}
	level := slog.LevelDebug
	if status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	s.log.Log(r.Context(), level, "boot request failed", "path", r.URL.Path, "peer", r.RemoteAddr, "error", err)
	http.Error(w, text, status)
}

// peerOf returns the address that a request came from.
func peerOf(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// urlOf returns the URL of this head's boot server as the client reached it.
func urlOf(r *http.Request) string {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		local := a.AddrPort()
		return schemeOf(r) + "://" + netip.AddrPortFrom(local.Addr().Unmap(), local.Port()).String()
	}
	return schemeOf(r) + "://" + r.Host
}

// schemeOf returns the scheme of the URL by which the client reached this head.
func schemeOf(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

func hostOf(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return ""
	}
	return u.Hostname()
}
