package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// compaction makes the heads drop history, which they do early where the store fills: one large record is replaced
// until it does. Afterwards the heads get the default quota, one after the other: the audit log of steady writes would
// fill a small store.
var compaction = kind{name: "compaction", begin: func(ctx context.Context, t *trial) (string, func() error, error) {
	h := t.heads[0]
	before, err := h.metrics(ctx)
	if err != nil {
		return "", nil, err
	}
	secrets := client.Of[trivet.Secret](t.load.sdk)
	if err := t.load.make(ctx, newBallast(ballastName)); err != nil {
		return "", nil, err
	}
	within, cancel := context.WithTimeout(ctx, 4*healTimeout)
	defer cancel()
	var now map[string]float64
	writes := 0
	err = testhead.Eventually(within, func() (err error) {
		if now, err = h.metrics(within); err != nil || now[compactedAt] > before[compactedAt] {
			return err
		}
		for range 10 {
			if now[usedBytes] > compactionQuota*ballastPercent/100 {
				break
			}
			if _, err := secrets.Patch(within, ballastName, ballast(8), 0); err != nil {
				return err
			}
			writes++
		}
		return fmt.Errorf("nothing was compacted after %d large writes, %.0f bytes are in use", writes, now[usedBytes])
	})
	if err != nil {
		return "", nil, err
	}
	t.site.quota = ""
	_, undo, err := rollingRestart(within, t)
	return fmt.Sprintf("up to revision %.0f", now[compactedAt]), undo, err
}}

const (
	ballastName = "ballast"
	// compactionQuota is the quota of the store until then. From 70 % on the store is filling.
	compactionQuota = 128 << 20
	ballastPercent  = 72
)

// newBallast is the record that gets ballast.
func newBallast(name string) *trivet.Secret {
	return &trivet.Secret{Meta: meta(name), Spec: trivet.SecretSpec{Data: map[string]string{"k0": "empty"}}}
}

// ballast is a patch with parts of 8 KiB of content that does not compress.
func ballast(parts int) []byte {
	data := map[string]string{}
	for i := range parts {
		value := make([]byte, 4<<10)
		_, _ = rand.Read(value)
		data[fmt.Sprint("k", i)] = hex.EncodeToString(value)
	}
	text, _ := json.Marshal(map[string]any{"spec": map[string]any{"data": data}})
	return text
}
