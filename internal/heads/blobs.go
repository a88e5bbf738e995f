package heads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/fleet"
)

// BlobConfig is what Blobs stand on.
type BlobConfig struct {
	Self  string // this head's name
	Store *blob.Store
	Fleet *fleet.Fleet
	Root  *auth.Root
	Cert  auth.CertFunc // this head's, as a member
	Log   *slog.Logger
	// Metrics takes what is counted; nil: nobody.
	Metrics prometheus.Registerer
	// Patience is how long Secure waits for a second head while nothing comes there, and Bound how long in all. 0: 10 s, 75 s.
	Patience, Bound time.Duration
}

// Blobs keeps content on several heads. Nobody writes down who holds what: heads ask each other, so that a head whose
// folder was lost is not believed to hold anything. What all full heads must hold is what records refer to.
type Blobs struct {
	BlobConfig
	client *http.Client
	puller *blob.Puller
}

// NewBlobs makes them. Close ends them, before the store.
func NewBlobs(cfg BlobConfig) *Blobs {
	cfg.Patience, cfg.Bound = cmp.Or(cfg.Patience, 10*time.Second), cmp.Or(cfg.Bound, 75*time.Second)
	b := &Blobs{BlobConfig: cfg, client: blobClient(cfg.Root, cfg.Cert)}
	b.puller = blob.NewPuller(cfg.Store, blob.PullConfig{
		Locate: b.locate, Client: b.client, Log: cfg.Log, Metrics: blob.NewMetrics(cfg.Metrics),
	})
	if cfg.Metrics != nil {
		cfg.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "trivet_blobs_missing", Help: "Blobs that records refer to and this head does not hold."},
			func() float64 { return float64(len(b.Missing())) }))
	}
	return b
}

// blobClient speaks HTTP/1.1: content has a connection of its own, and never holds up what heads have to say.
func blobClient(root *auth.Root, cert auth.CertFunc) *http.Client {
	t := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
	if root != nil {
		t.TLSClientConfig = root.PeerTLS(cert)
		t.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return &http.Client{Transport: t}
}

// Close ends all pulls and waits for them.
func (b *Blobs) Close() {
	b.puller.Close()
	b.client.CloseIdleConnections()
}

// other is another full head.
type other struct {
	name, url string
	member    bool // it counts
}

func (b *Blobs) others() (list []other) {
	for h := range b.Fleet.Heads.AllShared() {
		if h.Name != b.Self && h.Serves() && h.Status.Peer != "" {
			list = append(list, other{h.Name, h.Status.Peer, h.Status.State == trivet.HeadMember})
		}
	}
	return list
}

// askTime bounds a question to another head, beyond what it waits itself.
const askTime = 2 * time.Second

// Holding is what a head says of a blob.
type Holding struct {
	Ref     *trivet.BlobRef `json:"ref,omitempty"`     // it holds all of it
	Bytes   int64           `json:"bytes,omitempty"`   // of it that it holds
	Problem string          `json:"problem,omitempty"` // why it gets no more now
}

type holder struct {
	other
	Holding
	err error
}

// ask asks other heads for what they hold of a blob, all at once, and gives the answers as they come.
func (b *Blobs) ask(ctx context.Context, list []other, d blob.Digest, answer func(holder) (enough bool)) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	answers := make(chan holder, len(list))
	for _, o := range list {
		asking.Go(func() {
			h := holder{other: o}
			h.err = Call(ctx, b.client, o.url+Prefix+"blobs/held", heldAsk{Digest: d.String()}, &h.Holding)
			if h.Ref != nil && h.Ref.Digest != d.String() {
				h.Holding = Holding{}
			}
			answers <- h
		})
	}
	for range list {
		if answer(<-answers) {
			return
		}
	}
}

// locate finds heads that hold a blob: the first that says so, then the others, which may get it meanwhile.
func (b *Blobs) locate(ctx context.Context, ref trivet.BlobRef) (full trivet.BlobRef, urls []string, err error) {
	d, err := blob.ParseDigest(ref.Digest)
	if err != nil {
		return full, nil, err
	}
	list := b.others()
	var silent, wrong error
	b.ask(ctx, list, d, func(h holder) bool {
		switch {
		case h.err != nil:
			silent = errors.Join(silent, fmt.Errorf("%s: %w", h.name, h.err))
		case h.Ref == nil:
		case ref.Bytes != 0 && ref.Bytes != h.Ref.Bytes || ref.Chunks != "" && ref.Chunks != h.Ref.Chunks:
			wrong = fmt.Errorf("%w: %s holds %+v, wanted is %+v", trivet.ErrInvalid, h.name, *h.Ref, ref)
		default:
			full, urls = *h.Ref, []string{h.url + blobDoor}
		}
		return urls != nil
	})
	for _, o := range list {
		if u := o.url + blobDoor; urls != nil && u != urls[0] {
			urls = append(urls, u)
		}
	}
	switch {
	case ctx.Err() != nil:
		return full, nil, context.Cause(ctx)
	case urls != nil:
		return full, urls, nil
	case wrong != nil:
		return full, nil, wrong
	case silent != nil:
		return full, nil, &trivet.Error{Op: "find blob", Name: ref.Digest, Err: fmt.Errorf("%w: no head that answers holds it: %w", trivet.ErrUnavailable, silent)}
	}
	return full, nil, &trivet.Error{Op: "find blob", Name: ref.Digest, Err: fmt.Errorf("%w: no head holds it", trivet.ErrNotFound), Hint: "import it again"}
}

// Find gives the reference of a blob that this or another head holds. It is [trivet.ErrNotFound] when none does, and
// ErrUnavailable when a head that might could not be asked.
func (b *Blobs) Find(ctx context.Context, d blob.Digest) (trivet.BlobRef, error) {
	ref, err := b.Store.Stat(d)
	if errors.Is(err, trivet.ErrNotFound) {
		ref, _, err = b.locate(ctx, trivet.BlobRef{Digest: d.String()})
	}
	return ref, err
}

// Wanted gives what a record refers to; [trivet.ErrNotFound] if none does.
func (b *Blobs) Wanted(_ context.Context, d blob.Digest) (trivet.BlobRef, error) {
	use, ok := b.Fleet.BlobUse(d.String())
	if !ok {
		return use.Ref, &trivet.Error{Op: "find blob", Name: d.String(), Err: trivet.ErrNotFound}
	}
	return use.Ref, nil
}

// Boot serves machines: what this head holds, and what records refer to, which it pulls.
func (b *Blobs) Boot() http.Handler { return b.puller.Handler(b.Wanted) }

// API serves those who have proved who they are: all that any head holds.
func (b *Blobs) API() http.Handler { return b.puller.Handler(b.Find) }

// Missing are the blobs that records refer to and this head does not hold.
func (b *Blobs) Missing() (refs []trivet.BlobRef) {
	seen := map[string]bool{}
	for u := range b.Fleet.BlobUses() {
		if seen[u.Ref.Digest] {
			continue
		}
		seen[u.Ref.Digest] = true
		if d, err := blob.ParseDigest(u.Ref.Digest); err == nil && !b.Store.Has(d) {
			refs = append(refs, u.Ref)
		}
	}
	return refs
}

// Hold pulls a blob that a record refers to, if it is not here. It says whether a record does.
func (b *Blobs) Hold(ctx context.Context, digest string) (wanted bool, err error) {
	use, ok := b.Fleet.BlobUse(digest)
	if !ok {
		return false, nil
	}
	return true, b.puller.Pull(ctx, use.Ref)
}

// Delete removes a blob from every full head that answers. On one that does not, it stays, of use to nobody. It is
// [trivet.ErrNotFound] when none held it.
func (b *Blobs) Delete(ctx context.Context, d blob.Digest) error {
	err := b.puller.Delete(ctx, d)
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return err
	}
	for _, o := range b.others() {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		var dropped dropped
		failed := Call(ctx, b.client, o.url+Prefix+"blobs/drop", heldAsk{Digest: d.String()}, &dropped)
		cancel()
		if failed != nil {
			b.Log.Warn("a deleted blob may stay at another head", "blob", d, "head", o.name, "error", failed)
		} else if dropped.Dropped {
			err = nil
		}
	}
	return err
}
