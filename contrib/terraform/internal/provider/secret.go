package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

// dataDiffers reports whether the values of a secret are not the ones of the configuration. They cannot be read, so a
// head is asked what a write of them would change, which it does not carry out. Values that are not known yet differ.
func (r *record) dataDiffers(ctx context.Context, state *model, data types.Map) (bool, error) {
	if !isKnown(data) {
		return true, nil
	}
	u := &update{record: r, plan: state, state: state, data: stringsOf(data), dryRun: true}
	now, err := r.read(ctx, state)
	if err != nil || now == nil {
		return true, err
	}
	would, err := u.apply(ctx)
	if err != nil {
		return false, err
	}
	return would.Generation != now.Generation, nil
}
