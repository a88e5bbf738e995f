package installer

import (
	"context"
	"errors"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/wait"
)

// maxInventory leaves room in a hello for the token and the key.
const maxInventory = trivet.MaxHello - 4<<10

// hello authenticates the machine to a head and retries until one answers. If the token is refused, the machine
// reboots for another one.
func (a *agent) hello(ctx context.Context) (action.Ending, error) {
	h := trivet.Hello{
		Machine: a.Machine, MAC: a.MAC, Token: a.Token, Key: a.Key,
		BootID: a.BootID, Version: a.Version, Release: trivet.CurrentRelease, Inventory: a.Inventory,
	}
	h.Inventory.Shorten(maxInventory)
	for {
		tryCtx, cancel := context.WithTimeout(ctx, syncTimeout)
		grant, err := a.Client.Hello(tryCtx, h)
		cancel()
		switch {
		case err == nil:
			a.pause.reset()
			a.Log.Info("hello accepted", "machine", grant.Machine, "epoch", grant.Epoch, "run", grant.Run != nil)
			return a.handle(grant), nil
		case isRefusal(err):
			a.Log.Error("hello was refused; the machine reboots", "error", err)
			return action.EndReboot, wait.Sleep(ctx, wait.Jitter(refusedPause))
		}
		delay := a.pause.next()
		a.Log.Warn("no head accepted the hello", "error", err, "retryIn", delay)
		if err := wait.Sleep(ctx, delay); err != nil {
			return action.EndNone, err
		}
	}
}

// isRefusal reports whether a head refused this agent, because it is unknown or replaced.
func isRefusal(err error) bool {
	return errors.Is(err, trivet.ErrUnauthenticated) || errors.Is(err, trivet.ErrForbidden) ||
		errors.Is(err, trivet.ErrFenced)
}
