package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

const (
	learnerPort = "learner"
	// learnerDelay is that of each frame on its link.
	learnerDelay = 40 * time.Millisecond
)

// slowLearner lets a head join over a slow link. It gets a snapshot, as the log that other heads keep is short, and is
// removed when it is a member.
func slowLearner(n int) kind {
	return kind{name: "slow learner", begin: func(ctx context.Context, t *trial) (string, func() error, error) {
		h := &head{site: t.site, port: learnerPort, address: netip.AddrFrom4([4]byte{10, 99, 0, 99}),
			data: t.path(fmt.Sprint(learnerPort, n))}
		if !t.fabric.has(h.port) {
			if err := t.fabric.plug(h.port, h.address); err != nil {
				return "", nil, err
			}
		}
		near, err := t.fabric.delay(h.port, learnerDelay)
		if err != nil {
			return "", nil, err
		}
		defer h.kill()
		name, err := t.joinAndLeave(ctx, h)
		if err != nil {
			return "", nil, errors.Join(err, near())
		}
		return name, near, nil
	}}
}

// joinAndLeave lets a head join, waits until it is a member that got a snapshot, and removes it.
func (t *trial) joinAndLeave(ctx context.Context, h *head) (name string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*healTimeout)
	defer cancel()
	before := t.metricOfHeads(ctx, snapshotsSent)
	var token string
	err = testhead.Eventually(ctx, func() (err error) {
		token, err = t.trivet(ctx, "head", "token")
		return err
	})
	if err != nil {
		return "", err
	}
	if err := h.start(token); err != nil {
		return "", err
	}
	if name, err = t.awaitMember(ctx, h); err != nil {
		return name, fmt.Errorf("%w; the end of its log: %s", err, h.logEnd())
	}
	if sent := t.metricOfHeads(ctx, snapshotsSent) - before; sent < 1 {
		return name, fmt.Errorf("%s became a member, and got no snapshot", name)
	}
	h.mayEnd(true)
	return name, testhead.Eventually(ctx, func() error {
		_, err := t.trivet(ctx, "head", "remove", name, "--yes")
		if err != nil && strings.Contains(err.Error(), "removed") {
			err = nil
		}
		return errors.Join(err, t.isRemoved(ctx, name))
	})
}

// awaitMember waits until the head at an address is a member, and returns its name.
func (t *trial) awaitMember(ctx context.Context, h *head) (name string, err error) {
	return name, testhead.Eventually(ctx, func() error {
		list, _, err := client.Of[trivet.Head](t.load.sdk).List(ctx, client.ListOptions{})
		if err != nil {
			return err
		}
		for _, rec := range list {
			if strings.Contains(rec.Status.Peer, h.address.String()+":") && rec.Status.State == trivet.HeadMember {
				name = rec.Name
				return nil
			}
		}
		return errors.New("the head that joins is no member")
	})
}

func (t *trial) isRemoved(ctx context.Context, name string) error {
	rec, err := client.Of[trivet.Head](t.load.sdk).Get(ctx, name)
	if err == nil && rec.Status.State != trivet.HeadRemoved {
		err = fmt.Errorf("%s is %s", name, rec.Status.State)
	}
	return err
}
