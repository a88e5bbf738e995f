package action

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// array is what an action raid creates. Its ID is derived from the run, so that a repeated attempt, and the actions
// after it once the machine has booted again, recognise it.
type array struct {
	*actionspec.Raid
	id      gpt.GUID
	members []member
}

func (e *Env) arrayOf(at *Attempt, action string, s *actionspec.Raid) (a array, err error) {
	a = array{Raid: s, id: gpt.DeriveGUID(at.Run.UID, action, "raid")}
	a.members, err = e.members(at, s.Devices)
	return a, err
}

// ids are those that its members hold.
func (a array) ids() []string {
	return slices.Repeat([]string{hex.EncodeToString(a.id.BigEndian())}, len(a.members))
}

func (e *Env) raid(ctx context.Context, at *Attempt, s *actionspec.Raid) error {
	a, err := e.arrayOf(at, at.Action.Name, s)
	if err != nil {
		return err
	}
	if err := mustBeFree(a.members, "RAID", a.ids()); err != nil {
		return err
	}
	if err := e.tool(ctx, at, trivet.FaultMachine, "modprobe", "raid1"); err != nil {
		return err
	}
	if owned(a.members, "RAID", a.ids()) == len(a.members) {
		if err := e.assemble(ctx, at, a); err != nil {
			return err
		}
		fmt.Fprintf(at.Log, "%s exists already\n", a.Path())
	} else if err := e.createArray(ctx, at, a); err != nil {
		return err
	}
	at.Note(fmt.Sprintf("%s of %s, UUID %s", a.Path(), strings.Join(nodes(a.members), ", "), a.id))
	return nil
}

// arrayHead is more than a member has before the data of the array: at most 128 MiB that mdadm keeps for growing, and
// the bitmap.
const arrayHead = 160 << 20

// clearMember makes a device read as one that holds nothing, and the ends of an array on it, too: content from before
// the disk was partitioned or wiped, which erase the ends of devices, would be found in the new array.
func clearMember(node string) (err error) {
	d, err := block.Open(node)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := errors.Join(zero(d, 0, min(d.Size(), arrayHead)), wipeRange(d, 0, d.Size()), d.Sync()); err != nil {
		return fmt.Errorf("clear %s: %w", node, err)
	}
	return nil
}

// createArray creates an array. An interrupted attempt may have left superblocks on some members.
func (e *Env) createArray(ctx context.Context, at *Attempt, a array) error {
	for _, m := range a.members {
		if err := e.stopAbove(ctx, at, m.node); err != nil {
			return err
		}
		if err := clearMember(m.node); err != nil {
			return err
		}
	}
	args := []string{"mdadm", "--create", a.Path(), "--run", "--level=1", "--raid-devices=" + strconv.Itoa(len(a.members)),
		"--metadata=" + a.Metadata, "--bitmap=internal", "--homehost=any", "--uuid=" + a.id.String()}
	return e.tool(ctx, at, trivet.FaultMachine, append(args, nodes(a.members)...)...)
}

// assemble starts an array whose members all have its superblock, unless it runs.
func (e *Env) assemble(ctx context.Context, at *Attempt, a array) error {
	if e.runs(a) {
		return nil
	}
	for _, m := range a.members { // one that was not started in full
		if err := e.stopAbove(ctx, at, m.node); err != nil {
			return err
		}
	}
	args := []string{"mdadm", "--assemble", a.Path(), "--uuid=" + a.id.String()}
	return e.tool(ctx, at, trivet.FaultMachine, append(args, nodes(a.members)...)...)
}

// runs reports whether the array is active with all its members, and has its name.
func (e *Env) runs(a array) bool {
	st := e.stack()
	md := st.nameOf(a.Path())
	state := st.text(md, "md/array_state")
	return md != "" && state != "" && state != "clear" && state != "inactive" &&
		!slices.ContainsFunc(a.members, func(m member) bool {
			return !slices.Equal(st.holders(st.nameOf(m.node)), []string{md})
		})
}
