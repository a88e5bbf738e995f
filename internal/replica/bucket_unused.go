package replica

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/bucket"
)

// A copy that no record refers to gets a mark, UNUSED/HEX, and is removed when its mark is a week old. Ages are by the
// clock of the server: a mark that is written now is what they are compared with. The marks of a cluster that was
// recovered are not those of the cluster before.
const (
	unusedDir  = "unused"
	nowMark    = "now"
	keepUnused = 7 * 24 * time.Hour
	// keepParts is how long the parts of an upload that was interrupted are kept to be continued.
	keepParts = 7 * 24 * time.Hour
)

// bucketMetrics count what is moved to and from the bucket.
type bucketMetrics struct{ sent, read, removed prometheus.Counter }

func newBucketMetrics(to prometheus.Registerer) bucketMetrics {
	m := bucketMetrics{
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_bucket_sent_bytes_total",
			Help: "Bytes of images that this head copied to the bucket of the site."}),
		read: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_bucket_read_bytes_total",
			Help: "Bytes of images that this head read from the bucket of the site."}),
		removed: prometheus.NewCounter(prometheus.CounterOpts{Name: "trivet_bucket_removed_total",
			Help: "Copies that this head removed from the bucket of the site because no record refers to them."}),
	}
	if to != nil {
		to.MustRegister(m.sent, m.read, m.removed)
	}
	return m
}

// CollectInBucket removes from the bucket what no record has referred to for a week. It lists what this cluster has
// there, and returns how many copies it removed.
func (b *Blobs) CollectInBucket(ctx context.Context) (removed int, err error) {
	bk, err := b.bucket()
	if err != nil || bk == nil {
		return 0, err
	}
	marks := unusedDir
	if b.Incarnation != nil && b.Incarnation() != "" {
		marks += "-" + b.Incarnation()
	}
	if err := putMark(ctx, bk, path.Join(marks, nowMark)); err != nil {
		return 0, err
	}
	marked, err := bk.Entries(ctx, marks)
	if err != nil {
		return 0, err
	}
	files, err := bk.Entries(ctx, imagesDir)
	if err != nil {
		return 0, err
	}
	now := marked[nowMark].Modified
	if now.IsZero() {
		return 0, fmt.Errorf("%w: the S3 server does not list what was written a moment ago", trivet.ErrUnavailable)
	}
	delete(marked, nowMark)
	if err := b.Tables.Store.Sync(ctx); err != nil { // a copy that is behind decides nothing
		return 0, err
	}
	removed, err = b.collectIn(ctx, bk, marks, marked, files, now)
	if err == nil {
		err = bk.AbortOld(ctx, imagesDir, now.Add(-keepParts))
	}
	return removed, err
}

// collectIn removes what was marked for long, marks what is unused, and removes the marks of the rest.
func (b *Blobs) collectIn(ctx context.Context, bk *bucket.Bucket, marks string, marked, files map[string]bucket.Entry,
	now time.Time) (removed int, err error) {
	copies := digestsIn(files)
	for hex, mark := range marked {
		if !copies[hex] || b.isReferenced(hex) {
			if err := bk.Remove(ctx, path.Join(marks, hex)); err != nil {
				return removed, err
			}
			continue
		}
		if now.Sub(mark.Modified) < keepUnused {
			continue
		}
		file := path.Join(imagesDir, hex)
		if err := bk.Remove(ctx, file, file+tableSuffix, path.Join(marks, hex)); err != nil {
			return removed, err
		}
		removed++
		b.inBucket.removed.Inc()
		b.Log.Info("removed a copy from the bucket that no record refers to", "blob", "sha256:"+hex)
	}
	for hex := range copies {
		if _, known := marked[hex]; known || b.isReferenced(hex) {
			continue
		}
		if err := putMark(ctx, bk, path.Join(marks, hex)); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// digestsIn returns the digests of files that this program may have written, in hexadecimal.
func digestsIn(files map[string]bucket.Entry) map[string]bool {
	all := map[string]bool{}
	for name := range files {
		hex := strings.TrimSuffix(name, tableSuffix)
		if _, err := blob.ParseDigest("sha256:" + hex); err == nil {
			all[hex] = true
		}
	}
	return all
}

func (b *Blobs) isReferenced(hex string) bool {
	_, referenced := b.Tables.BlobUse("sha256:" + hex)
	return referenced
}

func putMark(ctx context.Context, bk *bucket.Bucket, name string) error {
	u := bk.Create(ctx, name, 0, "")
	defer u.Interrupt()
	return u.Publish(ctx, true)
}
