package cluster

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trivet-project/trivet/test/faultfs"
)

// head is one head: a port on the switch, a data folder, and a process where it runs.
type head struct {
	site    *site
	port    string // "h0"
	address netip.Addr
	data    string
	lossy   *faultfs.FS // what data is on; nil: an ordinary folder

	mu   sync.Mutex
	run  *process // guarded by mu; nil: none
	down bool     // guarded by mu: its end was wanted
}

// process is one run of a head.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func (h *head) api() string { return "https://" + h.address.String() + ":7480" }

// start runs the head. The first time it joins by a token, unless it is the first of all.
func (h *head) start(token string) error {
	args := []string{h.site.program, "server", "--data-dir", h.data, "--advertise", h.address.String(), "--ipxe", h.site.path("ipxe"),
		"--api", h.address.String() + ":7480", "--boot", h.address.String() + ":7481", "--tftp", h.address.String() + ":69",
		"--dhcp-listen", h.address.String() + ":67"}
	if token != "" {
		args = append(args, "--join", strings.Join(h.site.endpoints(), ","))
	}
	log, err := os.OpenFile(h.site.path(h.port+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &process{cmd: h.site.fabric.command(h.port, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), "TRIVET_JOIN_TOKEN="+token, clockEnv+"="+h.clockFile())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		return fmt.Errorf("%s runs already", h.port)
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	h.run, h.down = p, false
	go h.attend(p)
	return nil
}

// attend waits for the process's end, and writes it down where nobody wanted it.
func (h *head) attend(p *process) {
	err := p.cmd.Wait()
	h.mu.Lock()
	wanted := h.down
	h.run = nil
	h.mu.Unlock()
	if !wanted {
		h.site.history.died(h.port, fmt.Sprintf("%v; its last words: %s", err, h.lastWords()))
	}
	close(p.done)
}

// lastWords are the end of the head's log.
func (h *head) lastWords() string {
	text, err := os.ReadFile(h.site.path(h.port + ".log"))
	if err != nil {
		return err.Error()
	}
	return string(text[max(len(text)-2000, 0):])
}

// signal sends a signal to the head's process, if there is one; it gives the process.
func (h *head) signal(s syscall.Signal) *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == nil {
		return nil
	}
	h.down = h.down || s == syscall.SIGKILL || s == syscall.SIGTERM
	_ = h.run.cmd.Process.Signal(s) // it may have ended
	return h.run
}

// mayEnd says whether the head may end by itself from now on, and gives whether it runs.
func (h *head) mayEnd(may bool) (runs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.down = may
	}
	return h.run != nil
}

// kill ends it at once, like a pulled plug.
func (h *head) kill() {
	if p := h.signal(syscall.SIGKILL); p != nil {
		<-p.done
	}
}

// stop ends it in order. One that does not end is killed after a while, and that is an error.
func (h *head) stop() error {
	p := h.signal(syscall.SIGTERM)
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(30 * time.Second):
		h.kill()
		return fmt.Errorf("%s did not end within 30 s of a SIGTERM", h.port)
	}
}

// bare speaks to a head whose name is its address: whom it trusts is not the question here.
var bare = &http.Client{
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
	Timeout:   2 * time.Second,
}

// ask gets one of the head's pages.
func (h *head) ask(ctx context.Context, path, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.api()+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := bare.Do(req)
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
	err := eventually(ctx, func() error {
		_, err := h.ask(ctx, "/readyz", "")
		return err
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w; its last words: %s", h.port, err, h.lastWords())
	}
	return nil
}

// leads says whether the head's member is the store's leader.
func (h *head) leads(ctx context.Context) bool {
	text, err := h.ask(ctx, "/metrics", h.site.token)
	if err != nil {
		return false
	}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "trivet_store_leader "); ok {
			return value == "1"
		}
	}
	return false
}

// eventually tries until it works or ctx ends.
func eventually(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// path is a file of the site.
func (s *site) path(name string) string { return filepath.Join(s.dir, name) }
