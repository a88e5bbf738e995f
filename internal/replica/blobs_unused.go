package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
)

// unusedMetrics are the metrics of blobs that no record refers to.
type unusedMetrics struct {
	blobs, bytes                   prometheus.Gauge
	collectedBlobs, collectedBytes prometheus.Counter
}

func newUnusedMetrics(to prometheus.Registerer) unusedMetrics {
	m := unusedMetrics{
		blobs: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trivet_blobs_unreferenced",
			Help: "Blobs on this head's disk that no record refers to, by the last sweep, each 10 minutes."}),
		bytes: prometheus.NewGauge(prometheus.GaugeOpts{Name: "trivet_blobs_unreferenced_bytes",
			Help: "Bytes of the blobs on this head's disk that no record refers to."}),
		collectedBlobs: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blobs_collected_total",
			Help: "Blobs removed from this head's disk because no record refers to them."}),
		collectedBytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blobs_collected_bytes_total",
			Help: "Bytes of the blobs removed from this head's disk because no record refers to them."}),
	}
	if to != nil {
		to.MustRegister(m.blobs, m.bytes, m.collectedBlobs, m.collectedBytes)
	}
	return m
}

// Use is Find for a blob that a record is about to refer to. Each head that holds it notes that, and keeps it until
// the record is written; two at least where two are up.
func (b *Blobs) Use(ctx context.Context, d blob.Digest) (trivet.BlobRef, error) {
	ref, err := b.Store.Use(d)
	holders := 0
	if err == nil {
		holders = 1
	} else if !errors.Is(err, trivet.ErrNotFound) {
		return ref, err
	}
	var failed error
	b.query(ctx, b.otherHeads(), usePath, d, func(h holding) bool {
		if h.err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", h.name, h.err))
		} else if h.Ref != nil {
			if holders++; holders == 1 {
				ref = *h.Ref
			}
		}
		return holders >= 2
	})
	switch {
	case holders > 0:
		return ref, nil
	case failed != nil:
		return ref, errNoHolder(d.String(), trivet.ErrUnavailable, failed)
	}
	return ref, errNoHolder(d.String(), trivet.ErrNotFound)
}

// use notes for another head that a blob is about to be referred to.
func (b *Blobs) use(_ context.Context, _ trivet.BlobRef, d blob.Digest) (any, error) {
	ref, err := b.Store.Use(d)
	if errors.Is(err, trivet.ErrNotFound) {
		return holdingResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	return holdingResponse{Ref: &ref, Bytes: ref.Bytes}, nil
}

// Unreferenced returns what is on this head's disk and no record refers to.
func (b *Blobs) Unreferenced() ([]blob.Held, error) {
	held, err := b.Store.Held()
	if err != nil {
		return nil, err
	}
	held = slices.DeleteFunc(held, func(h blob.Held) bool {
		_, referenced := b.Tables.BlobUse(h.Digest.String())
		return referenced
	})
	size := int64(0)
	for _, h := range held {
		size += h.Bytes
	}
	b.unused.blobs.Set(float64(len(held)))
	b.unused.bytes.Set(float64(size))
	return held, nil
}

// Collect removes a blob from this head's disk. It fails with [trivet.ErrConflict] where a record refers to it, or it
// was used after a time, also by a head whose record is not written yet.
func (b *Blobs) Collect(d blob.Digest, unusedSince time.Time) error {
	if use, ok := b.Tables.BlobUse(d.String()); ok {
		return errReferenced(d, use.Kind, use.Name)
	}
	bytes, _ := b.puller.Progress(d)
	if err := b.puller.DeleteUnused(d, unusedSince); err != nil {
		return err
	}
	b.Log.Info("removed a blob that no record refers to", "blob", d, "bytes", bytes)
	b.unused.collectedBlobs.Inc()
	b.unused.collectedBytes.Add(float64(bytes))
	return nil
}

func errReferenced(d blob.Digest, kind trivet.Kind, name string) error {
	return &trivet.Error{Op: "delete blob", Name: d.String(),
		Err: fmt.Errorf("%w: %s %s refers to it", trivet.ErrConflict, strings.ToLower(string(kind)), name)}
}
