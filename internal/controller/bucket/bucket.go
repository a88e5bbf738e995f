// Package bucket keeps a copy of the content of each image in the bucket of the site, and removes from it what no
// record refers to.
//
// The head that ranks first does so, and another one after a few failures, as they may be its own. It compares all
// copies once an hour, by a request or two for each, and copies what is missing; an image that is new at once. Two heads
// may do it at the same time: what they write is the same.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/reconcile"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
)

// Declaration is what the controller reads and writes.
var Declaration = reconcile.Declaration{
	Name:    "bucket",
	Reads:   []trivet.Kind{"Image", "Secret"},
	Writes:  []trivet.Kind{"Site", "Event"},
	Watches: []trivet.Kind{"Image", "Secret", "Site"},
	Workers: 1,
}

// Copies are the copies in the bucket, as [replica.Blobs] has them.
type Copies interface {
	// EnsureInBucket makes the bucket have a copy, and reports whether it was written now.
	EnsureInBucket(ctx context.Context, ref trivet.BlobRef) (sent bool, err error)
	// CollectInBucket removes what no record has referred to for a week.
	CollectInBucket(ctx context.Context) (removed int, err error)
}

// Config is what the controller needs.
type Config struct {
	Tables *state.Tables
	Head   string // the name of this head
	// Rank returns how many heads go before this one for a key.
	Rank    func(key string) int
	Copies  Copies
	Log     *slog.Logger
	Metrics prometheus.Registerer // nil: none
}

// Controller implements [reconcile.Controller]. It has one key.
type Controller struct {
	Config
	conf      string          // that the following is of
	good      map[string]bool // the digests whose copies were compared
	checked   time.Time       // when all were compared last
	collected time.Time       // when the bucket was listed last
}

// New returns the controller.
func New(cfg Config) *Controller {
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(collector{cfg.Tables})
	}
	return &Controller{Config: cfg, good: map[string]bool{}}
}

// Declaration implements [reconcile.Controller].
func (c *Controller) Declaration() reconcile.Declaration { return Declaration }

// Keys implements [reconcile.Controller].
func (c *Controller) Keys() []string { return []string{trivet.SiteName} }

// Affected implements [reconcile.Controller]: an image that is new, and the configuration of the bucket.
func (c *Controller) Affected(e *store.Event) []string {
	is, was := e.Record(), e.Old()
	switch {
	case is == nil || was != nil && was.Header().Generation == is.Header().Generation:
		return nil
	case e.Kind == "Secret" && c.secret() != is.Header().FullName():
		return nil
	}
	return c.Keys()
}

// secret returns the full name of the secret of the bucket.
func (c *Controller) secret() string {
	site, err := c.Tables.Sites.Get(trivet.SiteName)
	if err != nil || site.Spec.Blobs == nil || site.Spec.Blobs.S3 == nil {
		return ""
	}
	return trivet.Resolve("", site.Spec.Blobs.S3.Secret)
}

const (
	// interval is how often a head looks whether it is the one that looks after the bucket.
	interval = 30 * time.Second
	// checkEvery is how often all copies are compared, collectEvery how often the bucket is listed.
	checkEvery   = time.Hour
	collectEvery = 24 * time.Hour
	// maxPause is the longest time from an attempt that failed to the next one.
	maxPause = 10 * time.Minute
	// reportEvery is how often the progress of a pass is written.
	reportEvery = 30 * time.Second
	// maxErrors is after how many errors in a row a pass ends: each may have waited for a timeout.
	maxErrors = 3
)

// Reconcile implements [reconcile.Controller].
func (c *Controller) Reconcile(ctx context.Context, _ string) (after time.Duration, err error) {
	site, err := c.Tables.Sites.Get(trivet.SiteName)
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	case site.Spec.Blobs == nil || site.Spec.Blobs.S3 == nil:
		return 0, c.forget(ctx, site)
	}
	failures := 0
	if site.Status.Blobs != nil {
		failures = site.Status.Blobs.Failures
	}
	if site.Spec.Blobs.Suspend || c.Rank(fmt.Sprintf("bucket/%d", failures/maxErrors)) > 0 {
		c.checked = time.Time{} // another head looks after it meanwhile
		return interval, nil
	}
	current, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go c.watch(current, site.Spec.Blobs, stop)
	failed := c.pass(current, site.Spec.Blobs.S3)
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.Is(context.Cause(current), errChanged):
		return time.Second, nil
	case failed != nil:
		c.Log.Warn("cannot keep copies of images in the bucket", "error", failed)
		return min(time.Minute<<min(failures, 4), maxPause), c.failed(ctx, failed)
	}
	return interval, nil
}

// errChanged ends a pass whose configuration was changed.
var errChanged = errors.New("spec.blobs of the site was changed")

// watch ends a pass, which may wait for a server, when its configuration is changed.
func (c *Controller) watch(ctx context.Context, conf *trivet.SiteBlobs, stop context.CancelCauseFunc) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		site, err := c.Tables.Sites.Get(trivet.SiteName)
		if err == nil && !conf.Equal(site.Spec.Blobs) {
			stop(errChanged)
			return
		}
	}
}

// pass makes the bucket have a copy of each image, and writes how far it is.
func (c *Controller) pass(ctx context.Context, conf *trivet.Bucket) error {
	secret, err := c.Tables.Secrets.Get(trivet.Resolve("", conf.Secret))
	if err != nil {
		return err
	}
	if text := fmt.Sprint(*conf, secret.UID, secret.Generation); text != c.conf {
		c.conf, c.checked, c.collected = text, time.Time{}, time.Time{}
	}
	all := time.Since(c.checked) >= checkEvery
	if all {
		c.good = map[string]bool{}
	}
	images := c.Tables.ImageBlobs()
	known := map[string]bool{}
	for _, ref := range images {
		known[ref.Digest] = c.good[ref.Digest]
	}
	c.good = known // of those that are gone nothing is remembered
	failed, err := c.copyAll(ctx, images)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	if all {
		c.checked = time.Now()
	}
	if err := c.succeeded(ctx, len(images), c.checked); err != nil {
		return err
	}
	if time.Since(c.collected) < collectEvery {
		return nil
	}
	if _, err := c.Copies.CollectInBucket(ctx); err != nil {
		return err
	}
	c.collected = time.Now()
	return nil
}

// copyAll copies what is not known to be there. It goes on after an error, which may be of one image only.
func (c *Controller) copyAll(ctx context.Context, images []trivet.BlobRef) (failed, err error) {
	reported, row := time.Now(), 0
	for _, ref := range images {
		if c.good[ref.Digest] {
			continue
		}
		if time.Since(reported) >= reportEvery {
			if err := c.progress(ctx, len(images)); err != nil {
				return failed, err
			}
			reported = time.Now()
		}
		_, err := c.Copies.EnsureInBucket(ctx, ref)
		if err == nil {
			c.good[ref.Digest], row = true, 0
			continue
		}
		if failed == nil {
			failed = fmt.Errorf("image content %s: %w", ref.Digest, err)
		}
		if row++; row == maxErrors || ctx.Err() != nil {
			return failed, nil
		}
	}
	return failed, nil
}

// copied returns of how many images the bucket has a copy.
func (c *Controller) copied() (n int) {
	for _, good := range c.good {
		if good {
			n++
		}
	}
	return n
}

// forget removes the status of a bucket that the site no longer has.
func (c *Controller) forget(ctx context.Context, site *trivet.Site) error {
	if c.conf = ""; site.Status.Blobs == nil {
		return nil
	}
	_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		site, err := c.Tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil || site.Spec.Blobs != nil {
			return err
		}
		site.Status.Blobs = nil
		return c.Tables.Sites.In(tx).Put(site)
	})
	return err
}

// progress writes how far a pass is.
func (c *Controller) progress(ctx context.Context, images int) error {
	return c.update(ctx, func(st *trivet.BlobsStatus) (reason, message string) {
		st.Images, st.Copied = images, c.copied()
		if st.State != trivet.BlobsFailing {
			st.State = trivet.BlobsCopying
		}
		return "", ""
	})
}

func (c *Controller) succeeded(ctx context.Context, images int, checked time.Time) error {
	return c.update(ctx, func(st *trivet.BlobsStatus) (reason, message string) {
		was := st.State
		st.State, st.Reason, st.Failures = trivet.BlobsActive, "", 0
		st.Images, st.Copied, st.Checked = images, c.copied(), checked.UTC().Truncate(time.Second)
		if was == trivet.BlobsFailing {
			return trivet.ReasonBucketRecovered, fmt.Sprintf("the bucket has a copy of each of %d images", images)
		}
		return "", ""
	})
}

func (c *Controller) failed(ctx context.Context, failed error) error {
	return c.update(ctx, func(st *trivet.BlobsStatus) (reason, message string) {
		was := st.State
		st.State, st.Reason, st.Copied = trivet.BlobsFailing, apitypes.Brief(failed.Error()), c.copied()
		st.Images = len(c.good)
		if st.Failures++; was != trivet.BlobsFailing {
			return trivet.ReasonBucketFailing, st.Reason
		}
		return "", ""
	})
}

// update changes the status, if that makes a difference. An event is written where do returns its reason.
func (c *Controller) update(ctx context.Context, do func(st *trivet.BlobsStatus) (reason, message string)) error {
	now := time.Now().UTC().Truncate(time.Second)
	_, err := c.Tables.Store.Update(ctx, func(tx *store.Tx) error {
		site, err := c.Tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil || site.Spec.Blobs == nil {
			return err
		}
		st := trivet.BlobsStatus{}
		if site.Status.Blobs != nil {
			st = *site.Status.Blobs
		}
		was := st
		reason, message := do(&st)
		if st.Head = c.Head; st == was {
			return nil
		}
		if reason != "" {
			st.Events++
			err = c.Tables.Events.In(tx).Put(&trivet.Event{Meta: trivet.Meta{Name: trivet.SiteEventName(st.Events)},
				Spec: trivet.EventSpec{Subject: "site/" + site.Name, SubjectUID: site.UID, Seq: st.Events, Time: now,
					Reason: reason, Message: message, Warning: reason == trivet.ReasonBucketFailing, Head: c.Head}})
		}
		site.Status.Blobs = &st
		return errors.Join(err, c.Tables.Sites.In(tx).Put(site))
	})
	return err
}
