package cluster

import (
	"context"
	"syscall"
)

// resetMachine powers a machine off and on, whatever its state.
func resetMachine(_ context.Context, t *trial) (string, func() error, error) {
	m := machineName(t.dice.IntN(len(t.load.racks) * t.load.perRack))
	t.load.power("on", m)
	return m, func() error { return nil }, nil
}

// stopRack stops a rack's machines for less time than after which they are declared lost.
func stopRack(_ context.Context, t *trial) (string, func() error, error) {
	r := t.rack()
	r.signal(syscall.SIGSTOP)
	return r.port, func() error { r.signal(syscall.SIGCONT); return nil }, nil
}
