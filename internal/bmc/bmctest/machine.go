// Package bmctest provides BMCs for tests and the lab: a real IPMI one (OpenIPMI's ipmi_sim) and a simulated
// Redfish service, each in front of a machine of the caller's.
package bmctest

import (
	"fmt"
	"sync"

	"github.com/trivet-project/trivet/internal/bmc"
)

// Machine is what a BMC controls. Calls of its methods are serialized, and the BMC answers nothing else meanwhile.
type Machine interface {
	Power() bmc.State
	SetPower(bmc.State) error
	// SetNextBoot sets the device of the next boot only; the machine resets it when it boots.
	SetNextBoot(bmc.Device) error
}

// TB is what this package needs of a *testing.T, so that programs do not link package testing.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

// Box is a machine in memory with a log of the changes.
type Box struct {
	mu    sync.Mutex
	state bmc.State // guarded by mu
	log   []string  // guarded by mu
	fail  error     // guarded by mu
	slow  int       // guarded by mu
	next  bmc.State // guarded by mu
}

// NewBox returns a Box that is off.
func NewBox() *Box { return &Box{state: bmc.Off, next: bmc.Off} }

// Power returns the state. After Slow a change takes that many calls.
func (b *Box) Power() bmc.State {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != b.next && b.slow > 0 {
		b.slow--
		return b.state
	}
	b.state = b.next
	return b.state
}

// SetPower changes the state and logs "on" or "off".
func (b *Box) SetPower(s bmc.State) error { return b.do(string(s), func() { b.next = s }) }

// SetNextBoot logs "boot network" or "boot disk".
func (b *Box) SetNextBoot(d bmc.Device) error { return b.do("boot "+string(d), func() {}) }

func (b *Box) do(what string, change func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, what)
	if b.fail != nil {
		return fmt.Errorf("%s: %w", what, b.fail)
	}
	change()
	return nil
}

// Fail makes every change fail with err, until it is called with nil.
func (b *Box) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// Slow makes the next change of power visible only after n calls of Power.
func (b *Box) Slow(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.slow = n
}

// Log returns the changes, oldest first, and clears the log.
func (b *Box) Log() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.log
	b.log = nil
	return log
}
