package maintenance

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
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
	event := &trivet.Event{Meta: trivet.Meta{Name: "head." + k.Head + ".store"}, Spec: trivet.EventSpec{
		Subject: "head/" + k.Head, Seq: 1, Time: time.Now(), Reason: r.reason, Warning: now > normal, Head: k.Head,
		Message: fmt.Sprintf("%s (%d of %d MiB in use)", r.message, u.Used>>20, u.Quota>>20),
	}}
	_, err := k.Tables.Store.Update(ctx, func(tx *store.Tx) error { return k.Tables.Events.In(tx).Put(event) })
	if err == nil {
		k.level = now
	}
	return err
}
