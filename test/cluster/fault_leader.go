package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet/internal/testhead"
)

// changeLeader makes another head the leader: the one that leads is stopped, cut off or killed, in rotation.
func changeLeader(n int) kind {
	return kind{name: "change the leader", begin: func(ctx context.Context, t *trial) (string, func() error, error) {
		was, err := t.leader(ctx)
		if err != nil {
			return "", nil, err
		}
		var undo func() error
		what := was.port
		switch n % 3 {
		case 0:
			_, undo, err = stopped(was)
			what += " stopped"
		case 1:
			undo, err = t.fabric.heal, t.fabric.isolate(was.port)
			what += " cut off"
		default:
			_, undo, err = t.killed(was)
			what += " killed"
		}
		if err != nil {
			return "", nil, err
		}
		now, err := t.leaderBut(ctx, was)
		if err != nil {
			return "", nil, errors.Join(err, undo())
		}
		return fmt.Sprintf("%s, then %s", what, now.port), undo, nil
	}}
}

// leaderBut returns the head that leads where that is not a given one.
func (s *site) leaderBut(ctx context.Context, was *head) (now *head, err error) {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	err = testhead.Eventually(ctx, func() error {
		for _, h := range s.heads {
			if h != was && h.leads(ctx) {
				now = h
				return nil
			}
		}
		return errors.New("no other head leads")
	})
	return now, err
}
