package bucket

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reconcile/reconciletest"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// site is a site with a bucket, and the controller of a head.
type site struct {
	*testing.T
	*Controller
	ensured []string // the digits of digests
	ensure  func(ctx context.Context, digest string) error
	listed  int
	keys    []string // that were ranked
	rank    int
}

func newSite(t *testing.T, images ...string) *site {
	t.Helper()
	s := &site{T: t}
	s.Controller = New(Config{Tables: storetest.New(t, state.New), Head: "head0", Copies: s,
		Rank: func(key string) int { s.keys = append(s.keys, key); return s.rank }, Log: slog.New(slog.DiscardHandler)})
	s.update(func(tx *store.Tx) error {
		return errors.Join(s.Tables.Sites.In(tx).Put(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}), s.putSecret(tx, "bucket"))
	})
	s.setImages(images...)
	s.change(func(conf *trivet.SiteSpec) {
		conf.Blobs = &trivet.SiteBlobs{S3: &trivet.Bucket{Location: "s3://images", Secret: "bucket"}}
	})
	return s
}

func (s *site) update(do func(tx *store.Tx) error) {
	s.Helper()
	if _, err := s.Tables.Store.Update(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

func (s *site) putSecret(tx *store.Tx, name string) error {
	return s.Tables.Secrets.In(tx).Put(&trivet.Secret{Meta: trivet.Meta{Project: "default", Name: name}})
}

// image returns an image whose digest has one digit only.
func image(digit string) *trivet.Image {
	digest := "sha256:" + strings.Repeat(digit, 64)
	return &trivet.Image{Meta: trivet.Meta{Project: "default", Name: digit},
		Spec: trivet.ImageSpec{Format: "raw", Blob: trivet.BlobRef{Digest: digest, Bytes: 1, Chunks: digest}}}
}

// setImages leaves images with these digits only.
func (s *site) setImages(digits ...string) {
	s.Helper()
	former := s.Tables.Images.Names()
	s.update(func(tx *store.Tx) error {
		for _, name := range former {
			if err := s.Tables.Images.In(tx).Delete(name); err != nil {
				return err
			}
		}
		for _, digit := range digits {
			if err := s.Tables.Images.In(tx).Put(image(digit)); err != nil {
				return err
			}
		}
		return nil
	})
}

// EnsureInBucket and CollectInBucket are those of the head.
func (s *site) EnsureInBucket(ctx context.Context, ref trivet.BlobRef) (bool, error) {
	digit := ref.Digest[len(ref.Digest)-1:]
	s.ensured = append(s.ensured, digit)
	if s.ensure == nil {
		return true, nil
	}
	return true, s.ensure(ctx, digit)
}

func (s *site) CollectInBucket(context.Context) (int, error) {
	s.listed++
	return 0, nil
}

func (s *site) change(do func(conf *trivet.SiteSpec)) {
	s.Helper()
	s.update(func(tx *store.Tx) error {
		is, err := s.Tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		do(&is.Spec)
		return s.Tables.Sites.In(tx).Put(is)
	})
}

func (s *site) reconcile() time.Duration {
	s.Helper()
	s.ensured = nil
	defer func() { slices.Sort(s.ensured) }()
	after, err := s.Reconcile(s.Context(), trivet.SiteName)
	if err != nil {
		s.Fatal(err)
	}
	return after
}

func (s *site) status() trivet.BlobsStatus {
	s.Helper()
	is, err := s.Tables.Sites.Get(trivet.SiteName)
	if err != nil || is.Status.Blobs == nil {
		s.Fatalf("%+v, %v", is, err)
	}
	return *is.Status.Blobs
}

func (s *site) expectEnsured(digests ...string) {
	s.Helper()
	if !slices.Equal(s.ensured, digests) {
		s.Errorf("looked at %q, want %q", s.ensured, digests)
	}
}

func TestDeclaration(t *testing.T) {
	reconciletest.Exact(t, Declaration, func(ctx context.Context, scope *store.Scope, _ int) error {
		s := newSite(t, "a")
		c := New(s.Config)
		c.Tables = s.Tables.Within(scope)
		s.ensure = func(context.Context, string) error { return errors.New("the failure is an event") }
		if _, err := c.Reconcile(ctx, trivet.SiteName); err != nil {
			return err
		}
		if !strings.Contains(s.status().Reason, "the failure is an event") {
			return errors.New(s.status().Reason)
		}
		return nil
	})
}

// All images are looked at once an hour, and a new one at once. The bucket is listed once a day. A status that is the
// same is not written again.
func TestWhatIsLookedAt(t *testing.T) {
	s := newSite(t, "a", "b")
	if after := s.reconcile(); after != interval {
		t.Errorf("next in %s", after)
	}
	s.expectEnsured("a", "b")
	st := s.status()
	if st.State != trivet.BlobsActive || st.Images != 2 || st.Copied != 2 || st.Checked.IsZero() || st.Head != "head0" {
		t.Errorf("%+v", st)
	}
	revision := s.Tables.Store.Revision()
	s.reconcile()
	s.expectEnsured()
	if s.Tables.Store.Revision() != revision {
		t.Error("the status was written again")
	}
	s.setImages("b", "c")
	s.reconcile()
	s.expectEnsured("c")
	if st := s.status(); st.Images != 2 || st.Copied != 2 {
		t.Errorf("%+v", st)
	}
	s.checked = s.checked.Add(-checkEvery)
	s.reconcile()
	s.expectEnsured("b", "c")
	if s.listed != 1 {
		t.Errorf("the bucket was listed %d times", s.listed)
	}
	s.change(func(conf *trivet.SiteSpec) { conf.Blobs.S3.Location = "s3://another" })
	s.reconcile()
	s.expectEnsured("b", "c")
	if s.listed != 2 {
		t.Errorf("the other bucket was listed %d times", s.listed)
	}
}

// A failure is a state with its reason, and one event; it does not hide the other images. After a few, another head
// looks after the bucket.
func TestFailures(t *testing.T) {
	s := newSite(t, "a", "b", "c", "d", "e")
	s.ensure = func(_ context.Context, digest string) error {
		if digest == "a" {
			return errors.New("no such account")
		}
		return nil
	}
	for n := range 4 {
		if after := s.reconcile(); after < time.Minute || after > maxPause {
			t.Errorf("next in %s", after)
		}
		s.expectEnsured("a", "b", "c", "d", "e")
		st := s.status()
		if st.State != trivet.BlobsFailing || st.Failures != n+1 || st.Copied != 4 || st.Images != 5 || st.Events != 1 ||
			!strings.Contains(st.Reason, "aaaa: no such account") {
			t.Errorf("%+v", st)
		}
	}
	if !slices.Equal(s.keys, []string{"bucket/0", "bucket/0", "bucket/0", "bucket/1"}) {
		t.Errorf("ranked %q", s.keys)
	}
	s.ensure = func(_ context.Context, digest string) error { return fmt.Errorf("no answer for %s", digest) }
	s.reconcile()
	if len(s.ensured) != maxErrors {
		t.Errorf("looked at %q: each may have waited for a timeout", s.ensured)
	}
	s.ensure = nil
	s.reconcile()
	if st := s.status(); st.State != trivet.BlobsActive || st.Failures != 0 || st.Reason != "" || st.Events != 2 {
		t.Errorf("%+v", st)
	}
	for seq, reason := range []string{trivet.ReasonBucketFailing, trivet.ReasonBucketRecovered} {
		e, err := s.Tables.Events.Get(t.Context(), trivet.SiteEventName(int64(seq)+1))
		if err != nil || e.Spec.Reason != reason || e.Spec.Subject != "site/site" {
			t.Errorf("%+v, %v", e, err)
		}
	}
}

// Nothing is done by a head that ranks later, and while the bucket is suspended. A change ends a pass that waits.
func TestSuspended(t *testing.T) {
	s := newSite(t, "a")
	s.rank = 1
	s.reconcile()
	s.expectEnsured()
	s.rank = 0
	s.ensure = func(ctx context.Context, _ string) error {
		s.change(func(conf *trivet.SiteSpec) { conf.Blobs.Suspend = true })
		<-ctx.Done()
		return ctx.Err()
	}
	if after := s.reconcile(); after > interval {
		t.Errorf("next in %s", after)
	}
	s.reconcile()
	s.expectEnsured()
	is, err := s.Tables.Sites.Get(trivet.SiteName)
	if err != nil || is.Status.Blobs != nil || s.listed != 0 {
		t.Errorf("%+v, %v, listed %d times", is.Status.Blobs, err, s.listed)
	}
}

// A bucket that the site has no more leaves no status.
func TestNoBucket(t *testing.T) {
	s := newSite(t, "a")
	s.reconcile()
	s.change(func(conf *trivet.SiteSpec) { conf.Blobs = nil })
	if after := s.reconcile(); after != 0 {
		t.Errorf("next in %s", after)
	}
	s.expectEnsured()
	is, err := s.Tables.Sites.Get(trivet.SiteName)
	if err != nil || is.Status.Blobs != nil {
		t.Errorf("%+v, %v", is.Status.Blobs, err)
	}
}

// A change of the bucket's secret, of its configuration, and a new image concern it; other changes do not.
func TestAffected(t *testing.T) {
	s := newSite(t)
	watch := s.Tables.Store.Watch(s.Tables.Store.Revision(), Declaration.Watches...)
	for _, test := range []struct {
		what string
		put  func(tx *store.Tx) error
		want int
	}{
		{"an image", func(tx *store.Tx) error {
			return s.Tables.Images.In(tx).Put(image("a"))
		}, 1},
		{"its secret", func(tx *store.Tx) error {
			is, err := s.Tables.Secrets.In(tx).Get("default/bucket")
			if err != nil {
				return err
			}
			is.Spec.Data = map[string]string{"accessKey": "another"}
			return s.Tables.Secrets.In(tx).Put(is)
		}, 1},
		{"another secret", func(tx *store.Tx) error { return s.putSecret(tx, "bmc") }, 0},
		{"the status of the site", func(tx *store.Tx) error {
			is, err := s.Tables.Sites.In(tx).Get(trivet.SiteName)
			if err != nil {
				return err
			}
			is.Status.HeadNames = 7
			return s.Tables.Sites.In(tx).Put(is)
		}, 0},
	} {
		s.update(test.put)
		events, err := watch.Next(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("%s: %v, %v", test.what, events, err)
		}
		if got := s.Affected(events[0]); len(got) != test.want {
			t.Errorf("%s: concerns %q", test.what, got)
		}
	}
}
