package netboot

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/trivet-project/trivet"
)

// routes are the whole plain HTTP door. Anybody on the boot network may ask it, so nothing here changes a record but the
// phone-home, which carries a signed token.
func (d *Door) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") })
	mux.HandleFunc("GET /ipxe/{file}", d.serveProgram)
	mux.HandleFunc("GET /boot/script/{mac}", d.serveScript)
	mux.HandleFunc("GET /boot/kernel/{mac}/{digest}", d.serveKernel)
	mux.HandleFunc("GET /boot/initrd/{mac}/{digest}", d.serveInitrd)
	mux.HandleFunc("GET /blob/{digest}", d.serveBlob)
	for _, version := range []string{"latest", "2009-04-04"} {
		mux.HandleFunc("GET /"+version+"/meta-data/{path...}", d.serveMetadata)
		mux.HandleFunc("GET /"+version+"/user-data", d.serveUserData)
	}
	mux.HandleFunc("POST /phone-home/{token}", d.servePhoneHome)
	return mux
}

// ServeHTTP is the plain HTTP door.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(answerTime)) // blobs get more as they go on
	if r.ContentLength != 0 {
		_ = conn.SetReadDeadline(time.Now().Add(bodyTime)) // also of a body that is not read: the server reads what is left of it
	}
	d.mux.ServeHTTP(w, r)
}

// Bounds of the HTTP door.
const (
	maxHeader  = 8 << 10
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	bodyTime   = 10 * time.Second
	answerTime = 30 * time.Second
)

// HTTPServer is a server for the door within its bounds. It has no ReadTimeout, which would end the context of requests
// whose answer takes longer.
func (d *Door) HTTPServer() *http.Server {
	return &http.Server{
		Handler:           d,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(d.log.Handler(), slog.LevelDebug),
	}
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text) // a client that went away asks again
}

// fail tells a machine what it did not get. Only what it can know anyway is spelled out.
func (d *Door) fail(w http.ResponseWriter, r *http.Request, err error) {
	status, text := http.StatusInternalServerError, "this head has a problem, see its log"
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
		status, text = http.StatusServiceUnavailable, "not now, try again"
		w.Header().Set("Retry-After", "2")
	}
	level := slog.LevelDebug
	if status == http.StatusInternalServerError {
		level = slog.LevelError
	}
	d.log.Log(r.Context(), level, "a machine's request was refused", "path", r.URL.Path, "peer", r.RemoteAddr, "error", err)
	http.Error(w, text, status)
}

// peerOf is the address that a request came from.
func peerOf(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// urlOf is this head's boot door as the one who asks sees it.
func urlOf(r *http.Request) string {
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok {
		local := a.AddrPort()
		return "http://" + netip.AddrPortFrom(local.Addr().Unmap(), local.Port()).String()
	}
	return "http://" + r.Host
}
