package installer

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
)

// hello proves the machine to a head, however long none answers. A token that is refused cannot be mended here: the machine
// boots again for another one.
func (a *agent) hello(ctx context.Context) (action.Ending, error) {
	h := trivet.Hello{
		Machine: a.Machine, MAC: a.MAC, Token: a.Token, Key: a.Key,
		BootID: a.BootID, Version: a.Version, Inventory: a.Inventory,
	}
	for {
		tryCtx, cancel := context.WithTimeout(ctx, syncTimeout)
		grant, err := a.Door.Hello(tryCtx, h)
		cancel()
		switch {
		case err == nil:
			a.pause.reset()
			a.Log.Info("granted", "machine", grant.Machine, "epoch", grant.Epoch, "work", grant.Run != nil)
			return a.obey(grant), nil
		case isRefusal(err):
			a.Log.Error("hello was refused; the machine boots anew", "error", err)
			return action.EndReboot, sleep(ctx, jitter(refusedPause))
		}
		wait := a.pause.next()
		a.Log.Warn("no head took the hello; trying again", "error", err, "in", wait)
		if err := sleep(ctx, wait); err != nil {
			return action.EndNone, err
		}
	}
}

// isRefusal reports whether a head knows this agent to be none, or no longer.
func isRefusal(err error) bool {
	return errors.Is(err, trivet.ErrUnauthenticated) || errors.Is(err, trivet.ErrForbidden) || errors.Is(err, trivet.ErrFenced)
}
