package fleet

import (
	"context"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// IntentLife is how long a head may act on a power intent that it knows of. What a BMC was told by then may take effect a little
// later.
const IntentLife = 90 * time.Second

// intend writes what the machine's BMC shall be told, and what the machine shall boot then.
func (f *Fleet) intend(c *change, want string) {
	boot := "disk"
	if c.workflow != nil && workflow.WantsAgent(&c.workflow.Status) {
		boot = "network"
	}
	c.dropIntent()
	st := &c.machine.Status
	st.Intent = &trivet.PowerIntent{Want: want, Boot: boot, Until: f.now().Add(IntentLife), Head: st.PowerHead}
	st.PowerHead = ""
}

// dropIntent takes the machine's intent away. A head that holds it may be speaking with the BMC at this moment.
func (c *change) dropIntent() {
	st := &c.machine.Status
	if st.Intent != nil && st.Intent.Head != "" {
		st.PowerHead = st.Intent.Head
	}
	st.Intent = nil
}

// Quiet notes that this head does not speak with the machine's BMC.
func (f *Fleet) Quiet(ctx context.Context, machine string) error {
	return f.onMachine(ctx, "power", machine, func(c *change) error {
		if c.machine.Status.PowerHead != f.head {
			return errUnchanged
		}
		c.machine.Status.PowerHead = ""
		return nil
	})
}

// SameIntent says whether two are one intent, whoever holds it.
func SameIntent(a, b trivet.PowerIntent) bool { return a.Want == b.Want && a.Until.Equal(b.Until) }

// Take makes this head the one that speaks with the machine's BMC for so long, and gives the intent as it holds it then. It is
// empty where the record has not that intent any more, or another head has taken it since.
func (f *Fleet) Take(ctx context.Context, machine string, intent trivet.PowerIntent, hold time.Duration) (held trivet.PowerIntent, err error) {
	err = f.onMachine(ctx, "take power", machine, func(c *change) error {
		held = trivet.PowerIntent{}
		now := c.machine.Status.Intent
		if now == nil || !SameIntent(*now, intent) || now.Head != intent.Head || !now.Held.Equal(intent.Held) {
			return errUnchanged
		}
		now.Head, now.Held = f.head, f.now().Add(hold)
		held = *now
		return nil
	})
	return held, err
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

// onIntent notes something of an intent that this head holds: ErrFenced where that is no longer so.
func (f *Fleet) onIntent(ctx context.Context, machine string, intent trivet.PowerIntent, do func(*change)) error {
	return f.onMachine(ctx, "power", machine, func(c *change) error {
		now := c.machine.Status.Intent
		if now == nil || !SameIntent(*now, intent) || now.Head != f.head {
			return trivet.ErrFenced
		}
		do(c)
		return nil
	})
}
