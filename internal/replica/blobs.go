// Package replica keeps blobs on several heads and reads the logs of runs from all of them.
package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
)

// BlobConfig is what Blobs needs.
type BlobConfig struct {
	Self   string // this head's name
	Store  *blob.Store
	Tables *state.Tables
	Root   *auth.Root
	Cert   auth.CertFunc // returns the certificate of this head's member
	// Incarnation returns that of this head's cluster.
	Incarnation func() string
	// Cluster is the ID of the cluster, and Unseal opens secrets; nil: the bucket of the site is not used.
	Cluster string
	Unseal  func(secret *trivet.Secret, key string) (string, error)
	Log     *slog.Logger
	// Metrics registers the metrics; nil: none.
	Metrics prometheus.Registerer
	// StallTimeout is how long Secure waits for a second head that makes no progress, SecureTimeout how long in all.
	// 0: 10 s, 75 s.
	StallTimeout, SecureTimeout time.Duration
}

// Blobs keeps blobs on several heads. No record says which head holds what: heads query each other, so a head that
// lost its directory does not count as a holder. Every full head must hold what records refer to.
type Blobs struct {
	BlobConfig
	client *http.Client
	puller *blob.Puller
	unused unusedMetrics

	remote   openBucket
	inBucket bucketMetrics

	scrubbed scrubMetrics
	reports  chan blobReport
	checking chan struct{} // semaphore: one blob at a time is read for checks
}

// NewBlobs returns the blobs of a head. They are to be closed before the store.
func NewBlobs(cfg BlobConfig) *Blobs {
	cfg.StallTimeout = cmp.Or(cfg.StallTimeout, 10*time.Second)
	cfg.SecureTimeout = cmp.Or(cfg.SecureTimeout, 75*time.Second)
	b := &Blobs{BlobConfig: cfg,
		reports: make(chan blobReport, maxReports), checking: make(chan struct{}, 1)}
	b.client = blobClient(&b.BlobConfig, bucketReader{b})
	b.puller = blob.NewPuller(cfg.Store, blob.PullConfig{
		Locate: b.locate, Client: b.client, Log: cfg.Log, Metrics: blob.NewMetrics(cfg.Metrics),
	})
	b.unused, b.scrubbed = newUnusedMetrics(cfg.Metrics), newScrubMetrics(cfg.Metrics)
	b.inBucket = newBucketMetrics(cfg.Metrics)
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "trivet_blobs_missing", Help: "Blobs that records refer to and this head does not hold."},
			func() float64 { return float64(len(b.Missing())) }))
	}
	return b
}

// blobClient returns a client for HTTP/1.1: content has connections of its own and never delays other requests. It reads
// from the bucket, too.
func blobClient(cfg *BlobConfig, fromBucket http.RoundTripper) *http.Client {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
	t.RegisterProtocol(bucketScheme, fromBucket)
	if cfg.Root != nil {
		t.TLSClientConfig = cfg.Root.PeerTLS(cfg.Cert)
		t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	if cfg.Incarnation == nil {
		return &http.Client{Transport: t}
	}
	return &http.Client{Transport: peer.NamingIncarnation(t, cfg.Incarnation)}
}

// Close ends all pulls and waits for them.
func (b *Blobs) Close() {
	b.puller.Close()
	b.client.CloseIdleConnections()
}

// Find returns the reference of a blob that this or another head holds. It fails with [trivet.ErrNotFound] where none
// does, and with ErrUnavailable where a head that might hold it does not respond.
func (b *Blobs) Find(ctx context.Context, d blob.Digest) (trivet.BlobRef, error) {
	ref, err := b.Store.Stat(d)
	if errors.Is(err, trivet.ErrNotFound) {
		ref, _, err = b.locate(ctx, trivet.BlobRef{Digest: d.String()})
	}
	return ref, err
}

// referenced returns what a record refers to; [trivet.ErrNotFound] where none does.
func (b *Blobs) referenced(_ context.Context, d blob.Digest) (trivet.BlobRef, error) {
	use, ok := b.Tables.BlobUse(d.String())
	if !ok {
		return use.Ref, &trivet.Error{Op: "find blob", Name: d.String(), Err: trivet.ErrNotFound}
	}
	return use.Ref, nil
}

// BootHandler serves machines, which are not authenticated: what records refer to. What is not on this head is pulled.
func (b *Blobs) BootHandler() http.Handler { return b.puller.Handler(b.referenced) }

// APIHandler serves authenticated clients: all that any head holds.
func (b *Blobs) APIHandler() http.Handler { return b.puller.Handler(b.Find) }

// Missing returns the blobs that records refer to and this head does not hold.
func (b *Blobs) Missing() (refs []trivet.BlobRef) {
	checked := map[string]bool{}
	for u := range b.Tables.BlobUses() {
		if checked[u.Ref.Digest] {
			continue
		}
		checked[u.Ref.Digest] = true
		if d, err := blob.ParseDigest(u.Ref.Digest); err == nil && !b.Store.Has(d) {
			refs = append(refs, u.Ref)
		}
	}
	return refs
}

// Ensure pulls a blob that a record refers to, if this head does not hold it. It reports whether a record does.
func (b *Blobs) Ensure(ctx context.Context, digest string) (referenced bool, err error) {
	use, ok := b.Tables.BlobUse(digest)
	if !ok {
		return false, nil
	}
	return true, b.puller.Pull(ctx, use.Ref)
}

// Fetch pulls a blob that any head holds, if this one does not.
func (b *Blobs) Fetch(ctx context.Context, d blob.Digest) error {
	ref, err := b.Find(ctx, d)
	if err != nil {
		return err
	}
	return b.puller.Pull(ctx, ref)
}

// Delete removes a blob from every full head that responds. On one that does not it stays, unused. It fails with
// [trivet.ErrNotFound] where none held it.
func (b *Blobs) Delete(ctx context.Context, d blob.Digest) error {
	err := b.puller.Delete(ctx, d)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	for _, h := range b.otherHeads() {
		deleted, failed := b.deleteFrom(ctx, h, d)
		if failed != nil {
			b.Log.Warn("a deleted blob may remain on another head", "blob", d, "head", h.name, "error", failed)
		} else if deleted {
			err = nil
		}
	}
	return err
}

func (b *Blobs) deleteFrom(ctx context.Context, h otherHead, d blob.Digest) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var resp deleteResponse
	err := b.call(ctx, h.url, deletePath, blobRequest{Digest: d.String()}, &resp)
	return resp.Deleted, err
}

// errNoHolder is the error of a blob that no head holds.
func errNoHolder(digest string, kind error, more ...error) *trivet.Error {
	if err := errors.Join(more...); err != nil {
		return &trivet.Error{Op: "find blob", Name: digest,
			Err: fmt.Errorf("%w: no head that responds holds it: %w", kind, err)}
	}
	return &trivet.Error{Op: "find blob", Name: digest, Err: fmt.Errorf("%w: no head holds it", kind),
		Hint: "import it again"}
}
