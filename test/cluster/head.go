package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
	"github.com/trivet-project/trivet/test/faultfs"
)

// head is one head: a port on the switch, a data directory, and a process while it runs.
type head struct {
	site    *site
	port    string // "h0"
	address netip.Addr
	data    string
	lossy   *faultfs.FS // what data is on; nil: an ordinary directory

	mu   sync.Mutex
	run  *headProcess // guarded by mu; nil: none
	down bool         // guarded by mu: its end was intended
}

func (h *head) api() string { return testhead.APIURL(h.address.String()) }

// start runs the head. The first time it joins by a token, unless it is the first of all.
func (h *head) start(token string) error {
	args := []string{h.site.program, "server", "--data-dir", h.data, "--advertise", h.address.String(),
		"--ipxe", h.site.path("ipxe"), "--api", h.address.String() + ":7480",
		"--boot", h.address.String() + ":7481", "--tftp", h.address.String() + ":69",
		"--dhcp-listen", h.address.String() + ":67"}
	if h.site.quota != "" {
		args = append(args, "--store-quota", h.site.quota)
	}
	if h.site.heartbeat != "" {
		args = append(args, "--heartbeat", h.site.heartbeat)
	}
	if token != "" {
		args = append(args, "--join", strings.Join(h.site.endpoints(), ","))
	}
	log, err := os.OpenFile(h.site.path(h.port+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := testhead.Command(h.port, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "TRIVET_JOIN_TOKEN="+token, clockEnv+"="+h.clockFile())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		return fmt.Errorf("%s runs already", h.port)
	}
	p, err := testhead.Start(cmd)
	if err != nil {
		return err
	}
	r := &headProcess{p, make(chan struct{})}
	h.run, h.down = r, false
	go h.awaitEnd(r)
	return nil
}

// headProcess is a process whose end is recorded.
type headProcess struct {
	*testhead.Process
	recorded chan struct{} // closed then
}

// awaitEnd waits for the end of the process, and records one that was not intended.
func (h *head) awaitEnd(p *headProcess) {
	<-p.Done()
	h.mu.Lock()
	intended := h.down
	h.run = nil
	h.mu.Unlock()
	if !intended {
		h.site.history.died(h.port, fmt.Sprintf("%v; the end of its log: %s", p.Cmd.ProcessState, h.logEnd()))
	}
	close(p.recorded)
}

// logEnd returns the end of the head's log.
func (h *head) logEnd() string {
	text, err := os.ReadFile(h.site.path(h.port + ".log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(len(text)-2000, 0):])
}

// signal sends a signal to the head's process, if there is one, and returns the process.
func (h *head) signal(s syscall.Signal) *headProcess {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil {
		return nil
	}
	h.down = h.down || s == syscall.SIGKILL || s == syscall.SIGTERM
	h.run.Signal(s)
	return h.run
}

// mayEnd sets whether the head may end by itself from now on, and reports whether it runs.
func (h *head) mayEnd(may bool) (runs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.down = may
	}
	return h.run != nil
}

// kill ends it at once, as a power cut does.
func (h *head) kill() {
	if p := h.signal(syscall.SIGKILL); p != nil {
		<-p.recorded
	}
}

// stop ends it in order. One that does not end is killed after a while, and that is an error.
func (h *head) stop() error {
	p := h.signal(syscall.SIGTERM)
	if p == nil {
		return nil
	}
	select {
	case <-p.recorded:
		return nil
	case <-time.After(30 * time.Second):
		h.kill()
		return fmt.Errorf("%s did not end within 30 s of a SIGTERM", h.port)
	}
}

// get returns one of the head's pages.
func (h *head) get(ctx context.Context, path, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.api()+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := testhead.Unverified.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

// ready waits until the head serves writes.
func (h *head) ready(ctx context.Context) error {
	err := testhead.Eventually(ctx, func() error {
		_, err := h.get(ctx, "/readyz", "")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; the end of its log: %s", h.port, err, h.logEnd())
	}
	return nil
}

// leads reports whether the head's member is the store's leader.
func (h *head) leads(ctx context.Context) bool {
	value, err := h.metric(ctx, "trivet_store_leader")
	return err == nil && value == 1
}

// metric returns the value of one of the head's metrics, which has no labels.
func (h *head) metric(ctx context.Context, name string) (float64, error) {
	text, err := h.get(ctx, "/metrics", h.site.token)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", h.port, name)
}

// path is a file of the site.
func (s *site) path(name string) string { return filepath.Join(s.dir, name) }
