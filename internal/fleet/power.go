package fleet

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// IntentLife is how long a power intent may be acted on. What a BMC was told by then may take effect a little later.
const IntentLife = 90 * time.Second

// intend writes what the machine's BMC shall be told, and what the machine shall boot then.
func (f *Fleet) intend(c *change, want string) {
	boot := "disk"
	if c.workflow != nil && workflow.WantsAgent(&c.workflow.Status) {
		boot = "network"
	}
	c.machine.Status.Intent = &trivet.PowerIntent{Want: want, Boot: boot, Until: f.now().Add(IntentLife)}
}

// A head that speaks with a BMC holds its intent for intentHold at a time. Another one takes it over intentRest after that: a
// BMC cannot refuse the last word of a head that died or was cut off, and clocks may differ.
const (
	intentHold = 20 * time.Second
	intentRest = 5 * time.Second
)

// Take makes this head the one that speaks with the machine's BMC, and gives the intent as it holds it then. Where another
// one holds it, wait says when to look again.
func (f *Fleet) Take(ctx context.Context, machine string, intent trivet.PowerIntent) (held trivet.PowerIntent, wait time.Duration, err error) {
	err = f.onMachine(ctx, "take power", machine, func(c *change) error {
		held, wait = trivet.PowerIntent{}, 0
		now := c.machine.Status.Intent
		if now == nil || now.Want != intent.Want || !now.Until.Equal(intent.Until) {
			return errUnchanged
		}
		if now.Head != "" && now.Head != f.head {
			if wait = now.Held.Add(intentRest).Sub(f.now()); wait > 0 {
				return errUnchanged
			}
		}
		now.Head, now.Held = f.head, earlier(f.now().Add(intentHold), now.Until)
		held = *now
		return nil
	})
	return held, max(wait, 0), err
}

// SeenOff notes that a power cycle is half done, so that whoever takes it over only powers on.
func (f *Fleet) SeenOff(ctx context.Context, machine string, intent trivet.PowerIntent) error {
	return f.onIntent(ctx, machine, intent, func(c *change) {
		c.machine.Status.Power, c.machine.Status.Intent.Off = "off", true
	})
}

// Powered notes that the BMC shows what was wanted.
func (f *Fleet) Powered(ctx context.Context, machine string, intent trivet.PowerIntent, state string) error {
	return f.onIntent(ctx, machine, intent, func(c *change) {
		c.machine.Status.Power, c.machine.Status.Intent = state, nil
		if state == "on" && (c.run == nil || !c.run.PowerSet()) {
			c.tell("PoweredOn", "the BMC powered the machine on, to boot from %s", intent.Boot)
		}
	})
}

// PowerFailed notes that the BMC could not be told in time.
func (f *Fleet) PowerFailed(ctx context.Context, machine string, intent trivet.PowerIntent, cause error) error {
	return f.onIntent(ctx, machine, intent, func(c *change) {
		c.machine.Status.Intent = nil
		c.happened = append(c.happened, workflow.Happening{
			Reason: "PowerFailed", Step: trivet.StepPowerOn, Message: cause.Error(), Warning: true,
		})
		if c.workflow != nil && c.running {
			if s := c.workflow.Status.Current(); s != nil {
				s.Cause = cause.Error()
			}
		}
	})
}

func (f *Fleet) onIntent(ctx context.Context, machine string, intent trivet.PowerIntent, do func(*change)) error {
	return f.onMachine(ctx, "power", machine, func(c *change) error {
		now := c.machine.Status.Intent
		if now == nil || now.Want != intent.Want || !now.Until.Equal(intent.Until) || now.Head != f.head {
			return errUnchanged
		}
		do(c)
		return nil
	})
}
