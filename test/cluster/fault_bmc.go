package cluster

import (
	"context"
	"time"
)

// What the BMCs of a rack do wrong for a while. A slow one answers after the fault has ended, too.
var brokenBMCs = []kind{
	{"BMCs answer slowly", 2, 8 * time.Second, answering(bmcSlow)},
	{"BMCs answer with errors", 2, 12 * time.Second, answering(bmcErrs)},
	{"BMCs answer with garbage", 2, 12 * time.Second, answering(bmcGarbles)},
	{"BMCs drop sessions", 2, 12 * time.Second, answering(bmcForgets)},
	{"BMCs do nothing", 2, 12 * time.Second, answering(bmcIdles)},
	{"BMCs hang up", 2, 12 * time.Second, answering(bmcHangsUp)},
}

// answering makes all BMCs answer in a way. A simulated site without BMCs is not changed.
func answering(mode bmcMode) func(context.Context, *trial) (string, func() error, error) {
	return func(_ context.Context, t *trial) (string, func() error, error) {
		t.load.bmcs(mode)
		return string(mode), func() error { t.load.bmcs(bmcSound); return nil }, nil
	}
}
