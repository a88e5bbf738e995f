package action

import (
	"context"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// restore starts the arrays and volume groups that earlier actions of the run have created, once in each life of the
// agent: the machine may have booted since, and nothing else starts them.
func (e *Env) restore(ctx context.Context, at *Attempt) error {
	if e.restored == at.Run.UID {
		return nil
	}
	for _, a := range at.Run.Spec.Actions {
		if a.Name == at.Action.Name {
			break
		}
		if err := e.restoreOne(ctx, at, a); err != nil {
			return fmt.Errorf("start again what action %s has created: %w", a.Name, err)
		}
	}
	e.restored = at.Run.UID
	return nil
}

func (e *Env) restoreOne(ctx context.Context, at *Attempt, a trivet.Action) error {
	if a.Use != "raid" && a.Use != "lvm" {
		return nil
	}
	s, err := actionspec.Parse(a)
	if err != nil {
		return err
	}
	switch s := s.(type) {
	case *actionspec.Raid:
		r, err := e.arrayOf(at, a.Name, s)
		if is, err := isWhole(at, r.members, "RAID", r.ids(), err); !is {
			return err
		}
		return errors.Join(e.tool(ctx, at, trivet.FaultMachine, "modprobe", "raid1"), e.assemble(ctx, at, r))
	case *actionspec.LVM:
		g, err := e.groupOf(at, a.Name, s)
		if is, err := isWhole(at, g.members, "LVM", g.ids, err); !is {
			return err
		}
		return errors.Join(e.tool(ctx, at, trivet.FaultMachine, "modprobe", "dm-mod"), e.activate(ctx, at, g))
	}
	return nil
}

// isWhole reports whether all devices hold what the action has created. After a wipe none does, or is there: err is why
// they could not be examined.
func isWhole(at *Attempt, members []member, kind string, ids []string, err error) (bool, error) {
	if errors.Is(err, actionspec.ErrNoMatch) || errors.Is(err, block.ErrNoPartition) {
		fmt.Fprintf(at.Log, "nothing is started again of an earlier action: %v\n", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	n := owned(members, kind, ids)
	if n == 0 || n == len(members) {
		return n > 0, nil
	}
	for i, m := range members {
		if owned(members[i:i+1], kind, ids[i:i+1]) == 0 {
			return false, failf(trivet.FaultMachine, "%s was a part of it, and holds %s now", m.node, m.holds)
		}
	}
	return false, nil
}
