package cluster

import (
	"context"
	"errors"
	"syscall"
)

func killAny(_ context.Context, t *trial) (string, func() error, error) { return t.killed(t.any()) }

func killLeader(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return t.killed(l)
}

// killTwo leaves three heads without a quorum.
func killTwo(_ context.Context, t *trial) (string, func() error, error) {
	at := t.dice.IntN(len(t.heads))
	return t.killed(t.heads[at], t.heads[(at+1)%len(t.heads)])
}

func killAll(_ context.Context, t *trial) (string, func() error, error) { return t.killed(t.heads...) }

// killed kills heads at once; they are started again.
func (t *trial) killed(heads ...*head) (what string, undo func() error, err error) {
	for _, h := range heads {
		what += h.port + " "
		h.kill()
	}
	return what, func() (err error) {
		for _, h := range heads {
			err = errors.Join(err, h.start(""))
		}
		return err
	}, nil
}

// rollingRestart stops one head after the other in order, and starts it again.
func rollingRestart(ctx context.Context, t *trial) (string, func() error, error) {
	for _, h := range t.heads {
		if err := errors.Join(h.stop(), h.start(""), h.ready(ctx)); err != nil {
			return "", nil, err
		}
	}
	return "all", func() error { return nil }, nil
}

func stopLeader(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return stopped(l)
}

func stopAny(_ context.Context, t *trial) (string, func() error, error) { return stopped(t.any()) }

// stopped stops a head's process; it does not know how much time has passed when it continues.
func stopped(h *head) (string, func() error, error) {
	h.signal(syscall.SIGSTOP)
	return h.port, func() error { h.signal(syscall.SIGCONT); return nil }, nil
}
