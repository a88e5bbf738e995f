package action

import (
	"context"
	"fmt"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

func (e *Env) partition(ctx context.Context, at *Attempt, s *actionspec.Partition) error {
	path, err := e.disk(at, s.Disk)
	if err != nil {
		return err
	}
	d, err := block.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	table, err := gpt.Plan(gpt.DeriveGUID(at.Run.UID, at.Action.Name, "disk"), d.Size(), d.Sector(), wants(at, s))
	if err != nil { // the template does not fit on this disk
		return finalf(trivet.FaultConfiguration, "partition %s: %w", path, err)
	}
	if table.Matches(d) {
		at.Note("the partitions exist already")
		return reread(ctx, d)
	}
	for _, p := range table.Parts { // or earlier content would still be found
		if err := wipeRange(d, table.Offset(p), table.Bytes(p)); err != nil {
			return fmt.Errorf("partition %s: %w", path, err)
		}
	}
	if err := table.Write(d); err != nil {
		return fmt.Errorf("partition %s: %w", path, err)
	}
	if err := d.Sync(); err != nil {
		return fmt.Errorf("partition %s: %w", path, err)
	}
	for _, p := range table.Parts {
		fmt.Fprintf(at.Log, "%s partition %d %q: %d MiB, PARTUUID=%s\n", path, p.Number, p.Name, table.Bytes(p)>>20,
			p.ID)
	}
	at.Note(fmt.Sprintf("%d partitions on %s", len(table.Parts), path))
	return reread(ctx, d)
}

// wants returns the partitions of the table. Identifiers are derived from the run, so that a repeated attempt
// recognises its own work.
func wants(at *Attempt, s *actionspec.Partition) []gpt.Want {
	var out []gpt.Want
	for i, p := range s.Partitions {
		bytes, _ := actionspec.ParseSize(p.Size) // these were checked
		kind, _ := gpt.ParseGUID(p.TypeGUID())
		id := gpt.DeriveGUID(at.Run.UID, at.Action.Name, strconv.Itoa(i))
		if p.UUID != "" {
			id, _ = gpt.ParseGUID(p.UUID)
		}
		out = append(out, gpt.Want{Name: p.Name, Type: kind, ID: id, Bytes: bytes})
	}
	return out
}
