package membership

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/program"
)

// witnessInterval is how often a witness reports its address and saves the members.
const witnessInterval = time.Second

// RunWitness does what a full head does by its record: it reports where the other members reach it, and saves them.
// While it knows no leader it queries the other heads whether it was removed, as it would not learn that from the
// store, and returns the error of a removed head. It returns ErrRestart where it must start again, to use other CAs or
// another program. ready returns why this head cannot write.
func (l *Local) RunWitness(ctx context.Context, own *program.Own, ready func(context.Context) error) error {
	tick, follow := time.NewTicker(witnessInterval), time.NewTicker(followInterval)
	defer tick.Stop()
	defer follow.Stop()
	m := l.member.Load()
	for {
		err := ready(ctx)
		if err == nil {
			err = errors.Join(m.SetURL(ctx, l.addr.Peer), l.SaveStarted(), l.SaveMembers())
		}
		if err == nil && time.Since(l.started) >= program.ConfirmTime {
			err = own.Confirm()
		}
		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Debug("the witness waits for a quorum", "error", err)
			if !m.HasLeader() && l.removedByOthers(ctx) {
				return l.ErrRemoved()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-follow.C:
			if err := l.followCAs(ctx); errors.Is(err, ErrRestart) {
				return err
			}
			err := l.followUpgrade(ctx, own)
			if errors.Is(err, ErrRestart) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Debug("the witness does not know the upgrade", "error", err)
			}
		}
	}
}

// removedByOthers reports whether another head responds that this one was removed.
func (l *Local) removedByOthers(ctx context.Context) bool {
	return slices.ContainsFunc(l.otherMembers(), func(p cluster.Peer) bool {
		_, err := l.client.Ping(ctx, p.URL)
		return errors.Is(err, trivet.ErrForbidden)
	})
}
