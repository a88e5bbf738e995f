package action

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// group is what an action lvm creates. The IDs of its physical volumes are derived from the run, as that of an [array]:
// a group of only these is the action's own.
type group struct {
	*actionspec.LVM
	members []member
	ids     []string
}

func (e *Env) groupOf(at *Attempt, action string, s *actionspec.LVM) (g group, err error) {
	g.LVM = s
	for i := range s.Devices {
		id := gpt.DeriveGUID(at.Run.UID, action, "pv", strconv.Itoa(i))
		g.ids = append(g.ids, hex.EncodeToString(id.BigEndian()))
	}
	g.members, err = e.members(at, s.Devices)
	return g, err
}

// lvm returns a command of LVM that sees only the group's devices: a group of another disk may have the same name.
func (g group) lvm(command string, args ...string) []string {
	return append([]string{"lvm", command, "--devices", strings.Join(nodes(g.members), ",")}, args...)
}

func (e *Env) lvm(ctx context.Context, at *Attempt, s *actionspec.LVM) error {
	g, err := e.groupOf(at, at.Action.Name, s)
	if err != nil {
		return err
	}
	if err := g.mustFit(); err != nil {
		return err
	}
	if err := mustBeFree(g.members, "LVM", g.ids); err != nil {
		return err
	}
	if err := e.tool(ctx, at, trivet.FaultMachine, "modprobe", "dm-mod"); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *Attempt, group) error{e.createPVs, e.createVG, e.createLVs, e.activate} {
		if err := step(ctx, at, g); err != nil {
			return err
		}
	}
	at.Note(fmt.Sprintf("%d volumes in %s, on %s", len(g.Volumes), g.Group, strings.Join(nodes(g.members), ", ")))
	return nil
}

// mustFit fails where the devices are too small, before anything is written.
func (g group) mustFit() error {
	total := int64(0)
	for _, m := range g.members {
		total += m.size
	}
	if need := g.FixedBytes(); need > total {
		return finalf(trivet.FaultConfiguration, "the volumes of %s need %d MiB, and its devices have %d MiB; "+
			"make the volumes smaller", g.Group, need>>20, total>>20)
	}
	return nil
}

func (e *Env) createPVs(ctx context.Context, at *Attempt, g group) error {
	for i, m := range g.members {
		if m.holds.ID == g.ids[i] {
			continue
		}
		args := g.lvm("pvcreate", "--yes", "--norestorefile", "--uuid", dashed(g.ids[i]), m.node)
		if err := e.tool(ctx, at, trivet.FaultMachine, args...); err != nil {
			return err
		}
	}
	return nil
}

// dashed writes an ID as LVM does: "aaaaaa-aaaa-aaaa-aaaa-aaaa-aaaa-aaaaaa".
func dashed(id string) string {
	return strings.Join([]string{id[:6], id[6:10], id[10:14], id[14:18], id[18:22], id[22:26], id[26:]}, "-")
}

func (e *Env) createVG(ctx context.Context, at *Attempt, g group) error {
	groups, err := e.toolLines(ctx, at, g.lvm("vgs", "--noheadings", "--options", "vg_name")...)
	if err != nil || slices.Contains(groups, g.Group) {
		return err
	}
	args := append(g.lvm("vgcreate", "--yes", g.Group), nodes(g.members)...)
	return e.tool(ctx, at, trivet.FaultConfiguration, args...)
}

// createLVs creates the volumes that do not exist yet, the one that gets the rest as the last.
func (e *Env) createLVs(ctx context.Context, at *Attempt, g group) error {
	exist, err := e.toolLines(ctx, at, g.lvm("lvs", "--noheadings", "--options", "lv_name", g.Group)...)
	if err != nil {
		return err
	}
	volumes := slices.Clone(g.Volumes)
	slices.SortStableFunc(volumes, func(a, b actionspec.Volume) int { return isRest(a) - isRest(b) })
	for _, v := range volumes {
		if slices.Contains(exist, v.Name) {
			fmt.Fprintf(at.Log, "%s exists already\n", g.Path(v.Name))
			continue
		}
		bytes, _ := actionspec.ParseSize(v.Size) // it was checked
		size := []string{"--size", fmt.Sprintf("%db", bytes)}
		if isRest(v) == 1 {
			size = []string{"--extents", "100%FREE"}
		}
		args := append(g.lvm("lvcreate", "--yes", "--wipesignatures", "y", "--zero", "y", "--name", v.Name), size...)
		if err := e.tool(ctx, at, trivet.FaultConfiguration, append(args, g.Group)...); err != nil {
			return err
		}
	}
	return nil
}

func isRest(v actionspec.Volume) int {
	if v.Size == actionspec.SizeRest {
		return 1
	}
	return 0
}

func (e *Env) activate(ctx context.Context, at *Attempt, g group) error {
	return e.tool(ctx, at, trivet.FaultMachine, g.lvm("vgchange", "--activate", "y", g.Group)...)
}
