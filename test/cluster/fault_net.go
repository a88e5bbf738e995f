package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func cutLeader(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return l.port, t.fabric.heal, t.fabric.isolate(l.port)
}

func cutAny(_ context.Context, t *trial) (string, func() error, error) {
	h := t.any()
	return h.port, t.fabric.heal, t.fabric.isolate(h.port)
}

// deafLeader drops what the other heads send to the leader; they still receive from it.
func deafLeader(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return l.port, t.fabric.heal, t.fabric.block(t.ports(l), []string{l.port})
}

// muteLeader drops what the leader sends to the other heads; it still receives from them.
func muteLeader(ctx context.Context, t *trial) (string, func() error, error) {
	l, err := t.leader(ctx)
	if err != nil {
		return "", nil, err
	}
	return l.port, t.fabric.heal, t.fabric.block([]string{l.port}, t.ports(l))
}

// ports returns those of all heads but one.
func (t *trial) ports(but *head) (all []string) {
	for _, h := range t.heads {
		if h != but {
			all = append(all, h.port)
		}
	}
	return all
}

// cutFromHeads cuts a head off the other heads. Machines and programs still reach it.
func cutFromHeads(_ context.Context, t *trial) (string, func() error, error) {
	h := t.any()
	others := t.ports(h)
	return h.port, t.fabric.heal,
		errors.Join(t.fabric.block(others, []string{h.port}), t.fabric.block([]string{h.port}, others))
}

// cutHeads cuts all heads off each other. Machines and programs reach them all, and none has a quorum.
func cutHeads(_ context.Context, t *trial) (string, func() error, error) {
	var err error
	for _, h := range t.heads {
		err = errors.Join(err, t.fabric.block([]string{h.port}, t.ports(h)))
	}
	return "all", t.fabric.heal, err
}

// cutWithRack leaves a head alone with some machines.
func cutWithRack(_ context.Context, t *trial) (string, func() error, error) {
	h, r := t.any(), t.rack()
	return h.port + " " + r.port, t.fabric.heal, t.fabric.isolate(h.port, r.port)
}

func cutRack(_ context.Context, t *trial) (string, func() error, error) {
	r := t.rack()
	return r.port, t.fabric.heal, t.fabric.isolate(r.port)
}

func (t *trial) rack() *rack { return t.load.racks[t.dice.IntN(len(t.load.racks))] }

func loseFrames(_ context.Context, t *trial) (string, func() error, error) {
	h, percent := t.any(), 5+t.dice.IntN(25)
	return fmt.Sprintf("%s %d%%", h.port, percent), t.fabric.heal, t.fabric.lose(h.port, percent)
}

// delayFrames adds latency to a head's link.
func delayFrames(_ context.Context, t *trial) (string, func() error, error) {
	h, late := t.any(), time.Duration(5+t.dice.IntN(95))*time.Millisecond
	undo, err := t.fabric.delay(h.port, late)
	return fmt.Sprint(h.port, " ", late), undo, err
}
