package maintenance

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/trivet-project/trivet"
)

// reports are what operators read at each level.
var reports = map[level]struct {
	severity        slog.Level
	reason, message string
}{
	normal: {slog.LevelInfo, trivet.ReasonStoreNormal, "the store is no longer filling"},
	filling: {slog.LevelWarn, trivet.ReasonStoreFilling,
		"the store is filling; writes will be refused at 90 % of its quota"},
	full: {slog.LevelError, trivet.ReasonStoreFull,
		"the store is full: only deletions and small changes are accepted"},
}

// report logs a change of the level and writes it as this head's event.
func (k *Keeper) report(ctx context.Context, now level) error {
	if now == k.level {
		return nil
	}
	u, r := k.Member.Usage(), reports[now]
	k.Log.Log(ctx, r.severity, r.message, "used", u.Used, "quota", u.Quota,
		"hint", "delete records that are not needed, or start all heads with a larger --store-quota")
	err := k.Tables.PutHeadEvent(ctx, k.Head, "store", trivet.EventSpec{Reason: r.reason, Warning: now > normal,
		Message: fmt.Sprintf("%s (%d of %d MiB in use)", r.message, u.Used>>20, u.Quota>>20)})
	if err == nil {
		k.level = now
	}
	return err
}
