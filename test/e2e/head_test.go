package e2e_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
)

// head is one head, as the real program on a host of its own or on the switch's.
type head struct {
	s       *site
	name    string // of its data directory
	address string
	net     *vm.Network // its host
	flags   []string
	process *testhead.Process // nil: it does not run
	log     *testhead.Log     // of all its processes
}

// newHead returns a head that has not started yet.
func (s *site) newHead(name, address string, host *vm.Network, flags ...string) *head {
	s.Helper()
	h := &head{s: s, name: name, address: address, net: host, flags: flags, log: testhead.NewLog()}
	s.Cleanup(h.printLog)
	s.Cleanup(h.kill)
	return h
}

func (h *head) mustStart(more ...string) {
	h.s.Helper()
	if err := h.start(more...); err != nil {
		h.s.Fatal(err)
	}
}

// start runs the head, with more flags for this time, and waits until it accepts writes.
func (h *head) start(more ...string) (err error) {
	cmd := testhead.Command(h.net.Name(), h.s.binary,
		slices.Concat([]string{"server", "--data-dir", h.s.path(h.name)}, h.flags, more)...)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	if h.process, err = testhead.Start(cmd); err != nil {
		return err
	}
	return h.ready()
}

// ready waits until the head accepts writes.
func (h *head) ready() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := h.s.command("curl", "-skf", "--max-time", "2", testhead.APIURL(h.address)+"/readyz").Run()
		switch {
		case err == nil:
			return nil
		case time.Now().After(deadline) || h.s.Context().Err() != nil:
			return fmt.Errorf("head %s is not ready: %w", h.name, err)
		}
	}
}

// kill is kill -9.
func (h *head) kill() {
	if h.process != nil {
		h.process.Kill()
		h.process = nil
	}
}

// printLog prints the head's log when the test failed.
func (h *head) printLog() {
	if h.s.Failed() {
		h.s.Logf("log of %s:\n%s", h.name, tail([]byte(h.log.String()), 8000))
	}
}
