package cluster

import (
	"context"
	"syscall"
)

// resetMachine powers a machine off and on, whatever it does.
func resetMachine(_ context.Context, t *trial) (string, func() error, error) {
	m := machineName(t.dice.IntN(len(t.load.racks) * t.load.perRack))
	t.load.power("on", m)
	return m, func() error { return nil }, nil
}

// stopRack lets a rack's machines stand still, for less than it takes to be held for lost.
func stopRack(_ context.Context, t *trial) (string, func() error, error) {
	r := t.rack()
	r.signal(syscall.SIGSTOP)
	return r.port, func() error { r.signal(syscall.SIGCONT); return nil }, nil
}
