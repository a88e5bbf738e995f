package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/trivet-project/trivet/internal/lab/vm"
)

// head is one head, as the real program on a host of its own or the switch's.
type head struct {
	s       *site
	name    string // of its data folder
	address string
	net     *vm.Network // its host
	how     []string    // its flags
	stop    func()      // kills it; nil: it does not run
	log     *os.File
}

// newHead is a head that has not started yet.
func (s *site) newHead(name, address string, host *vm.Network, how ...string) *head {
	s.Helper()
	h := &head{s: s, name: name, address: address, net: host, how: how}
	var err error
	if h.log, err = os.Create(s.path(name + ".log")); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(h.tell)
	s.Cleanup(h.kill)
	return h
}

func (h *head) mustStart(more ...string) {
	h.s.Helper()
	if err := h.start(more...); err != nil {
		h.s.Fatal(err)
	}
}

// start runs the head, with more flags for this time, and waits until it takes writes.
func (h *head) start(more ...string) (err error) {
	cmd := exec.Command(h.s.binary, slices.Concat([]string{"server", "--data-dir", h.s.path(h.name)}, h.how, more)...)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	if h.stop, err = vm.Start(h.net, cmd); err != nil {
		return err
	}
	return h.ready()
}

// ready waits until the head takes writes.
func (h *head) ready() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := h.s.command(h.s.ctx, "curl", "-skf", "--max-time", "2", "https://"+h.address+":7480/readyz").Run()
		switch {
		case err == nil:
			return nil
		case time.Now().After(deadline) || h.s.ctx.Err() != nil:
			return fmt.Errorf("head %s is not ready: %w", h.name, err)
		}
	}
}

// kill is kill -9.
func (h *head) kill() {
	if h.stop != nil {
		h.stop()
		h.stop = nil
	}
}

// tell shows what the head had to say when a test failed.
func (h *head) tell() {
	if !h.s.Failed() {
		return
	}
	text, _ := os.ReadFile(h.log.Name())
	h.s.Logf("%s's log:\n%s", h.name, tail(text, 8000))
}
