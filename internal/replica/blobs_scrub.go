package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/wait"
)

const (
	// scrubRate bounds the reading of the scrub, in bytes a second: 20 GB take 42 minutes.
	scrubRate = 8 << 20
	// scrubPause is how long the scrub rests where nothing is to be verified, or something failed.
	scrubPause = time.Hour
	// maxReports bounds the events that wait to be written; what is beyond is in the log only.
	maxReports = 64
	// reportTimeout bounds the writing of an event.
	reportTimeout = 30 * time.Second
	// hintNoCopy is the hint where no head has a good copy.
	hintNoCopy = "import the image or platform again, or restore its contents from a backup: docs/recovery.md"
)

// scrubMetrics are the metrics of what was verified.
type scrubMetrics struct{ blobs, bytes, damaged, repaired prometheus.Counter }

func newScrubMetrics(to prometheus.Registerer) scrubMetrics {
	m := scrubMetrics{
		blobs: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blobs_verified_total",
			Help: "Blobs on this head's disk that the scrub or a check has read and compared with their digests."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blobs_verified_bytes_total",
			Help: "Bytes on this head's disk that the scrub or a check has read."}),
		damaged: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blobs_damaged_total",
			Help: "Blobs whose file on this head's disk turned out to be damaged, when it was served or verified."}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_blobs_repaired_total",
			Help: "Blobs that were damaged on this head's disk and are complete again."}),
	}
	if to != nil {
		to.MustRegister(m.blobs, m.bytes, m.damaged, m.repaired)
	}
	return m
}

// blobReport is an event that is to be written.
type blobReport struct {
	digest blob.Digest
	spec   trivet.EventSpec
}

// Damaged is to be called when a blob's file on this head turns out to be damaged. It does not block.
func (b *Blobs) Damaged(d blob.Digest, err error) {
	b.scrubbed.damaged.Inc()
	b.Log.Error("a blob on this head's disk is damaged; fetching it from another head", "error", err)
	b.queueReport(d, trivet.EventSpec{Reason: trivet.ReasonBlobDamaged, Warning: true,
		Message: fmt.Sprintf("blob %s: %v; it is fetched from another head; if none holds it, %s", d,
			problemOf(err), hintNoCopy)})
}

// Repaired is to be called when a blob that was damaged is complete again. It does not block.
func (b *Blobs) Repaired(d blob.Digest) {
	b.scrubbed.repaired.Inc()
	b.Log.Info("a blob that was damaged is complete again", "blob", d)
	b.queueReport(d, trivet.EventSpec{Reason: trivet.ReasonBlobRepaired,
		Message: fmt.Sprintf("blob %s is complete again", d)})
}

func (b *Blobs) queueReport(d blob.Digest, spec trivet.EventSpec) {
	select {
	case b.reports <- blobReport{d, spec}:
	default:
	}
}

// Run scrubs this head's blobs and writes events of those that are damaged or repaired, until ctx ends.
func (b *Blobs) Run(ctx context.Context) {
	var reporting sync.WaitGroup
	defer reporting.Wait()
	reporting.Go(func() { b.report(ctx) })
	b.scrub(ctx)
}

// report writes events: the last one of the blobs whose digests begin with the same digit, so that a head has 16.
func (b *Blobs) report(ctx context.Context) {
	for {
		select {
		case r := <-b.reports:
			bounded, cancel := context.WithTimeout(ctx, reportTimeout)
			err := b.Tables.PutHeadEvent(bounded, b.Self, fmt.Sprintf("blob.%x", r.digest[0]>>4), r.spec)
			cancel()
			if err != nil && ctx.Err() == nil {
				b.Log.Warn("cannot write an event", "reason", r.spec.Reason, "blob", r.digest, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// scrub verifies this head's blobs one after the other, slowly, and repairs what is damaged: one pass a week.
func (b *Blobs) scrub(ctx context.Context) {
	for ctx.Err() == nil {
		next, pause, err := b.Store.NextScrub(time.Now())
		if err == nil && next != nil {
			copied := b.examine(ctx, *next, true, b.pace(scrubRate, func(int64) {}))
			if ctx.Err() != nil {
				return // it is verified again
			}
			b.logBad(copied)
			err, pause = b.Store.Scrubbed(*next), 0
		}
		if err != nil {
			b.Log.Warn("cannot scrub blobs", "error", err)
			pause = scrubPause
		}
		if pause > 0 && wait.Sleep(ctx, min(pause, scrubPause)) != nil {
			return
		}
	}
}

func (b *Blobs) logBad(c trivet.BlobCopy) {
	if c.Bad() {
		b.Log.Error("the scrub found a blob that it cannot repair now", "blob", c.Digest, "state", c.State,
			"problem", c.Problem, "hint", hintNoCopy)
	}
}

// pace bounds the rate of reading and counts what is read; read is called with the bytes so far.
func (b *Blobs) pace(rate int64, read func(int64)) blob.Pace {
	total := int64(0)
	return func(ctx context.Context, n int) error {
		total += int64(n)
		b.scrubbed.bytes.Add(float64(n))
		read(total)
		return wait.Sleep(ctx, time.Duration(n)*time.Second/time.Duration(rate))
	}
}

// examine verifies this head's copy of a blob. With repair, it fetches one that is damaged or missing from other heads.
func (b *Blobs) examine(ctx context.Context, d blob.Digest, repair bool, pace blob.Pace) trivet.BlobCopy {
	c := trivet.BlobCopy{Head: b.Self, Digest: d.String(), State: trivet.CopyGood}
	ref := trivet.BlobRef{Digest: d.String()}
	if use, ok := b.Tables.BlobUse(d.String()); ok {
		ref = use.Ref
	}
	err := b.Store.Verify(ctx, d, pace)
	if err == nil {
		b.scrubbed.blobs.Inc()
		if held, err := b.Store.Stat(d); err == nil {
			c.Bytes = held.Bytes
		}
		return c
	}
	c.State, c.Problem = trivet.CopyUnknown, problemOf(err)
	switch {
	case errors.Is(err, trivet.ErrInvalid):
		b.scrubbed.blobs.Inc()
		c.State = trivet.CopyDamaged
	case errors.Is(err, trivet.ErrNotFound):
		c.State, c.Problem = trivet.CopyMissing, ""
	default:
		return c
	}
	if !repair {
		return c
	}
	if err := b.puller.Pull(ctx, ref); err != nil {
		c.Problem = strings.TrimPrefix(c.Problem+"; it cannot be repaired: "+problemOf(err), "; ")
		return c
	}
	c.State, c.Problem = trivet.CopyRepaired, ""
	return c
}

// problemOf returns the text of an error without its subject and its hint, which are shown beside it.
func problemOf(err error) string {
	var own *trivet.Error
	if errors.As(err, &own) {
		err = own.Err
	}
	return err.Error()
}
