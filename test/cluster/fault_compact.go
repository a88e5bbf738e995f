package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// compaction makes the heads drop history, which they do early where the store fills: one large record is replaced
// until three quarters of the quota are in use.
var compaction = kind{name: "compaction", begin: func(ctx context.Context, t *trial) (string, func() error, error) {
	h := t.heads[0]
	before, err := h.metrics(ctx)
	if err != nil {
		return "", nil, err
	}
	secrets := client.Of[trivet.Secret](t.load.sdk)
	if err := t.load.make(ctx, &trivet.Secret{Meta: meta(ballastName)}); err != nil {
		return "", nil, err
	}
	within, cancel := context.WithTimeout(ctx, 2*healTimeout)
	defer cancel()
	var now map[string]float64
	writes := 0
	err = testhead.Eventually(within, func() (err error) {
		if now, err = h.metrics(within); err != nil || now[compactedAt] > before[compactedAt] {
			return err
		}
		for range 10 {
			if now[usedBytes] > ballastQuota*3/4 {
				break
			}
			if _, err := secrets.Patch(within, ballastName, ballast(), 0); err != nil {
				return err
			}
			writes++
		}
		return fmt.Errorf("nothing was compacted after %d large writes, %.0f bytes are in use", writes, now[usedBytes])
	})
	return fmt.Sprintf("up to revision %.0f", now[compactedAt]), func() error { return nil }, err
}}

const (
	ballastName  = "ballast"
	ballastQuota = 64 << 20 // smallQuota
)

// ballast is a patch with content that does not compress.
func ballast() []byte {
	value := make([]byte, 30<<10)
	_, _ = rand.Read(value)
	return fmt.Appendf(nil, `{"spec":{"data":{"k":%q}}}`, hex.EncodeToString(value))
}
