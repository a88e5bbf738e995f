package provider

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// Delete deletes the record and waits until it is gone.
func (r *record) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	m, diags := load(ctx, &r.kind, req.State)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	limit, diags := m.timeouts.Delete(ctx, deleteTimeout)
	if resp.Diagnostics.Append(diags...); diags.HasError() {
		return
	}
	d := deletion{kind: r.records(m), name: m.name.ValueString(), uid: m.uid.ValueString()}
	if r.runs {
		d.members = m.name.ValueString()
	}
	if err := d.run(ctx, limit); err != nil {
		resp.Diagnostics.Append(problem(r.op("delete", m), err))
	}
}

// deletion is the deletion of a record.
type deletion struct {
	kind      client.Kind
	name, uid string
	members   string // the provision whose members are deleted with it; empty: none
}

// The pauses between attempts of a deletion.
const (
	minPause = 100 * time.Millisecond
	maxPause = 5 * time.Second
)

// run deletes the record and waits until it is gone. While others refer to it the deletion is tried again: the run of a
// deleted provision, and the addresses of a deleted machine, end soon after it.
func (d *deletion) run(ctx context.Context, limit time.Duration) error {
	until, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		gone, err := d.step(until)
		if gone || err != nil && !errors.Is(err, trivet.ErrConflict) && until.Err() == nil {
			return err
		}
		select {
		case <-until.Done():
			return d.late(ctx, limit, err)
		case <-time.After(pause):
		}
	}
}

// step deletes the record if it exists, and reports whether it is gone. A record of the same name that was created
// since is not deleted.
func (d *deletion) step(ctx context.Context) (gone bool, err error) {
	now, err := d.kind.Get(ctx, d.name)
	if isNotFound(err) || err == nil && now.Header().UID != d.uid {
		return d.membersGone(ctx)
	}
	if err != nil {
		return false, err
	}
	if err := d.kind.Delete(ctx, d.name); err != nil && !isNotFound(err) {
		return false, err
	}
	return false, nil
}

// membersGone reports whether a provision with a count has no members any more.
func (d *deletion) membersGone(ctx context.Context) (bool, error) {
	if d.members == "" {
		return true, nil
	}
	left, _, err := d.kind.List(ctx, client.ListOptions{Fields: "status.memberOf=" + d.members})
	for _, r := range left {
		if p, ok := r.(*trivet.Provision); ok && p.Status.MemberOfUID == d.uid {
			return false, err
		}
	}
	return err == nil, err
}

// late returns the error of a deletion that is not complete.
func (d *deletion) late(ctx context.Context, limit time.Duration, last error) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case errors.Is(last, trivet.ErrConflict):
		return fmt.Errorf("after %s: %w", limit, last)
	}
	return errors.Join(fmt.Errorf("it still exists after %s", limit), last)
}
