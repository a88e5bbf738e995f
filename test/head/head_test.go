// Package head_test tests one head under bad conditions: the real program, on a loopback address, with bad input, bad
// disks, bad clocks and signals. After each of them the head must still serve, or have reported why it cannot.
package head_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// timeout bounds every wait of these tests for something that must happen.
const timeout = 30 * time.Second

// head is one running head.
type head struct{ *testhead.Head }

var fixedTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// newHead starts a head on a new directory, which knows one machine, and waits until it is ready.
func newHead(t *testing.T) *head {
	t.Helper()
	return newHeadOn(t, t.TempDir())
}

// newHeadOn does so on a disk.
func newHeadOn(t *testing.T, disk string) *head {
	t.Helper()
	h := startHead(t, filepath.Join(disk, "data"))
	h.Apply(site)
	return h
}

const (
	knownMAC = "52:54:00:00:00:01"
	site     = `
kind: Network
name: lo
spec:
  cidr: 127.0.0.0/8
  ranges: [{from: 127.9.9.1, to: 127.9.9.200}]
---
kind: Machine
name: m1
labels: {rack: r1}
spec:
  nics: [{mac: "52:54:00:00:00:01"}]
`
)

// startHead starts a head on a directory and waits until it is ready.
func startHead(t *testing.T, dir string) *head {
	t.Helper()
	h := launch(t, dir, testhead.NewAddress())
	h.AwaitReady()
	return h
}

// launch starts a head, which may fail to become ready.
func launch(t *testing.T, dir, address string, flags ...string) *head {
	t.Helper()
	h := &head{&testhead.Head{T: t, Name: "the head", Dir: dir, Address: address}}
	h.Start(flags...)
	return h
}

// mustServe expects reads, writes and boots.
func (h *head) mustServe() {
	h.Helper()
	h.mustRead()
	h.mustBoot()
	label := fmt.Appendf(nil, `{"labels":{"touched":"%d"}}`, time.Now().UnixNano())
	if _, err := client.Of[trivet.Machine](h.Client(-1)).Patch(h.Context(), "m1", label, 0); err != nil {
		h.Errorf("a write: %v", err)
	}
}

// mustRead expects the list of machines.
func (h *head) mustRead() {
	h.Helper()
	list, _, err := client.Of[trivet.Machine](h.Client(-1)).List(h.Context(), client.ListOptions{})
	if err != nil || len(list) != 1 || list[0].Name != "m1" {
		h.Errorf("a read: %v, %v", list, err)
	}
}

// mustBoot expects what the known machine boots by.
func (h *head) mustBoot() {
	h.Helper()
	h.MustBoot(knownMAC)
}
