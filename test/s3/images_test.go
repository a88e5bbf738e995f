package s3_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// images is a head whose site has a bucket for images.
type images struct {
	*testing.T
	server  *server
	head    *testhead.Head
	cluster string
}

func newImages(t *testing.T, s *server) *images {
	t.Helper()
	i := &images{T: t, server: s, head: testhead.NewHead(t, "head0")}
	i.head.Up()
	version, err := i.head.Client(testhead.Timeout).Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i.cluster = version.Cluster
	return i
}

// configure sets the bucket of the site.
func (i *images) configure(endpoint, secret, more string) {
	i.Helper()
	i.head.Apply(fmt.Sprintf("kind: Secret\nname: bucket\nspec: {data: {accessKey: %s, secretKey: %q}}\n---\n"+
		"kind: Site\nname: site\nspec:\n  blobs:\n    s3: {location: \"s3://%s/images\", endpoint: %q, secret: bucket}\n%s",
		accessKey, secret, bucketName, endpoint, more))
}

// importImage imports an image of several parts, and returns the name of its file.
func (i *images) importImage(name string, size int) (hex string) {
	i.Helper()
	path := filepath.Join(i.TempDir(), name)
	if err := os.WriteFile(path, append([]byte(name), content(size)...), 0o600); err != nil {
		i.Fatal(err)
	}
	i.head.MustTrivet("image", "import", path, "--name", name, "--format", "raw")
	image, err := client.Of[trivet.Image](i.head.Client(testhead.Timeout)).Get(i.Context(), name)
	if err != nil {
		i.Fatal(err)
	}
	return strings.TrimPrefix(image.Spec.Blob.Digest, "sha256:")
}

// object returns the path of an object in the directory of the server, local that of a file on the head.
func (i *images) object(parts ...string) string {
	return filepath.Join(append([]string{i.server.dir, "images", i.cluster}, parts...)...)
}

func (i *images) local(hex string) string { return filepath.Join(i.head.Dir, "blobs", hex) }

func (i *images) await(what string, ok func(st trivet.BlobsStatus) bool) {
	i.Helper()
	i.head.Await(what, func() error {
		site, err := client.Of[trivet.Site](i.head.Client(testhead.Timeout)).Get(i.Context(), trivet.SiteName)
		if err != nil {
			return err
		}
		if site.Status.Blobs == nil || !ok(*site.Status.Blobs) {
			return fmt.Errorf("status %+v", site.Status.Blobs)
		}
		if strings.Contains(fmt.Sprintf("%+v %+v", site, site.Status.Blobs), secretKey) {
			i.Errorf("the secret is in the record: %+v", site)
		}
		return nil
	})
}

func (i *images) awaitCopies(n int) {
	i.Helper()
	i.await(fmt.Sprintf("the bucket has %d copies", n), func(st trivet.BlobsStatus) bool {
		return st.State == trivet.BlobsActive && st.Copied == n && st.Images == n && !st.Checked.IsZero()
	})
}

// copies returns the states of the copies of a blob by their heads, as a command prints them.
func (i *images) copies(hex string, args ...string) map[string]trivet.CopyState {
	i.Helper()
	r, err := i.head.Trivet(append([]string{"blob"}, append(args, "sha256:"+hex, "-o", "json")...)...)
	var all []trivet.BlobCopy
	if failed := json.Unmarshal([]byte(r.Stdout), &all); failed != nil {
		i.Fatalf("%v, %v: %s", err, failed, r.All)
	}
	states, bad := map[string]trivet.CopyState{}, false
	for _, c := range all {
		states[c.Head] = c.State
		bad = bad || c.Bad()
	}
	if bad != (err != nil) {
		i.Errorf("%v, and %+v", err, all)
	}
	return states
}

func (i *images) expectCopies(hex string, head, bucket trivet.CopyState, args ...string) {
	i.Helper()
	got := i.copies(hex, args...)
	if len(got) != 2 || got["head0"] != head || got["s3"] != bucket {
		i.Errorf("%s: %v; want %s, and in the bucket %s", strings.Join(args, " "), got, head, bucket)
	}
}

// flip changes a byte of a file.
func (i *images) flip(path string, at int64) {
	i.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		i.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	_, failed := f.ReadAt(b, at)
	b[0] ^= 1
	_, err = f.WriteAt(b, at)
	if err = errors.Join(failed, err); err != nil {
		i.Fatal(err)
	}
}

// fetch reads an image from the head as a machine does.
func (i *images) fetch(hex string) (int, []byte) {
	i.Helper()
	resp, err := http.Get(i.head.BootURL() + "/blob/sha256:" + hex)
	if err != nil {
		i.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		i.Error(err)
	}
	return resp.StatusCode, b
}

func (i *images) must(err error) {
	i.Helper()
	if err != nil {
		i.Fatal(err)
	}
}

// A further copy of each image is in the bucket. What is damaged, truncated or lost there is found and written again,
// and what is damaged or lost on the head is read from there.
func TestImagesInABucket(t *testing.T) {
	t.Parallel()
	i := newImages(t, newServer(t))
	first := i.importImage("i1", 40*mib)
	i.configure(i.server.url(), secretKey, "")
	i.awaitCopies(1)
	second := i.importImage("i2", 3*mib)
	i.awaitCopies(2)
	want := append([]byte("i1"), content(40*mib)...)
	got, err := os.ReadFile(i.object("images", first))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the object has %d bytes: %v", len(got), err)
	}
	good, missing := trivet.CopyGood, trivet.CopyMissing
	damaged, repaired := trivet.CopyDamaged, trivet.CopyRepaired
	i.expectCopies(first, good, good, "check", "--deep")
	i.expectCopies(second, good, good, "check", "--deep")

	i.flip(i.object("images", first), 30*mib)
	i.expectCopies(first, good, good, "check") // its size and the digest that it was written with are the same
	i.expectCopies(first, good, damaged, "check", "--deep")
	i.expectCopies(first, good, repaired, "repair", "--deep")
	i.expectCopies(first, good, good, "check", "--deep")
	i.must(os.Truncate(i.object("images", first), 10*mib))
	i.expectCopies(first, good, damaged, "check")
	i.expectCopies(first, good, repaired, "repair")
	i.flip(i.object("images", first+".chunks"), 5)
	i.expectCopies(first, good, damaged, "check")
	i.expectCopies(first, good, repaired, "repair")
	i.must(os.Remove(i.object("images", first)))
	i.expectCopies(first, good, missing, "check")
	i.expectCopies(first, good, repaired, "repair")

	i.flip(i.local(first), 20*mib)
	i.expectCopies(first, repaired, good, "repair")
	i.flip(i.local(first), 20*mib)
	i.flip(i.object("images", first), 30*mib) // in another chunk: those that are good here are not read from there
	i.expectCopies(first, repaired, good, "repair")
	i.expectCopies(first, good, repaired, "repair", "--deep")

	i.head.Stop()
	for _, path := range []string{i.local(first), i.local(first) + ".chunks"} {
		i.must(os.Remove(path))
	}
	i.head.Up()
	status, body := i.fetch(first)
	if status != http.StatusOK || !bytes.Equal(body, want) {
		t.Errorf("an image that only the bucket has: status %d, %d bytes", status, len(body))
	}
	i.head.Await("the head has it again", func() error { _, err := os.Stat(i.local(first)); return err })
	i.expectCopies(first, good, good, "check", "--deep")
}

// What is damaged in the bucket is never served, nor kept.
func TestDamagedInTheBucketOnly(t *testing.T) {
	t.Parallel()
	i := newImages(t, newServer(t))
	hex := i.importImage("i1", 40*mib)
	i.configure(i.server.url(), secretKey, "")
	i.awaitCopies(1)
	i.flip(i.object("images", hex), 30*mib)
	i.head.Stop()
	for _, path := range []string{i.local(hex), i.local(hex) + ".chunks"} {
		i.must(os.Remove(path))
	}
	i.head.Up()
	resp, err := http.Get(i.head.BootURL() + "/blob/sha256:" + hex)
	i.must(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	want := append([]byte("i1"), content(40*mib)...)
	if resp.StatusCode == http.StatusOK && (err == nil || !bytes.HasPrefix(want, body)) {
		t.Errorf("it was served: %d bytes, %v", len(body), err)
	}
	if got := i.copies(hex, "repair"); got["head0"] != trivet.CopyMissing {
		t.Errorf("%v", got)
	}
	if _, err := os.Stat(i.local(hex)); err == nil {
		t.Error("the head keeps it")
	}
}

// Whatever is wrong with the bucket is a state with its reason, an event and a warning of the status. The head serves
// what it has meanwhile, and copies what is missing when the bucket is there again.
func TestBucketOfImagesFails(t *testing.T) {
	t.Parallel()
	i := newImages(t, newServer(t))
	hex := i.importImage("i1", mib)
	failing := func(texts ...string) {
		i.Helper()
		i.await("fails: "+texts[0], func(st trivet.BlobsStatus) bool {
			ok := st.State == trivet.BlobsFailing
			for _, text := range texts {
				ok = ok && strings.Contains(st.Reason, text)
			}
			return ok
		})
	}
	i.configure(i.server.url(), "another-secret", "")
	failing("unauthenticated", "check AWS_SECRET_ACCESS_KEY, the profile, or secretKey of the secret")
	r, _ := i.head.Trivet("status", "--invariant", "blobs")
	if !strings.Contains(r.All, "the bucket has 0 of 1 image, and copying fails") || !strings.Contains(r.All, "trivet describe site site") {
		t.Errorf("status: %s", r.All)
	}
	if out := i.head.MustTrivet("describe", "site", "site"); !strings.Contains(out, "BucketFailing") {
		t.Errorf("described: %s", out)
	}
	i.configure("http://169.254.169.254", secretKey, "")
	failing("link-local")
	i.server.addUser("another", "secret-of-another")
	i.head.Apply(strings.NewReplacer(accessKey, "another").Replace("kind: Secret\nname: bucket\nspec: {data: {accessKey: " +
		accessKey + ", secretKey: secret-of-another}}\n---\nkind: Site\nname: site\nspec: {blobs: {s3: {location: " +
		"\"s3://" + bucketName + "/images\", endpoint: \"" + i.server.url() + "\", secret: bucket}}}\n"))
	failing("forbidden", "allow it s3:ListBucket")
	i.configure(i.server.url(), secretKey, "")
	i.awaitCopies(1)
	if out := i.head.MustTrivet("describe", "site", "site"); !strings.Contains(out, "BucketRecovered") {
		t.Errorf("described: %s", out)
	}

	i.server.Kill()
	if status, body := i.fetch(hex); status != http.StatusOK || len(body) != mib+2 {
		t.Errorf("status %d, %d bytes", status, len(body))
	}
	got := i.copies(hex, "check")
	if got["head0"] != trivet.CopyGood || got["s3"] != trivet.CopyUnknown {
		t.Errorf("checked %v", got)
	}
	i.importImage("i2", mib)
	failing("unavailable", "check that it runs")
	i.server.start()
	i.importImage("i3", mib)
	i.awaitCopies(3)
	if i.head.Log.Contains(secretKey) || i.head.Log.Contains("another-secret") {
		t.Error("a secret is in the log")
	}
}

// Two clusters may have the same bucket: neither touches what the other one has there. What no image refers to is
// removed a week after that was seen, by the clock of the server, and nothing while it is suspended.
func TestTwoClustersInOneBucket(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	i, other := newImages(t, s), newImages(t, s)
	hex := i.importImage("i1", mib)
	kept := i.importImage("i2", mib)
	if same := other.importImage("i1", mib); same != hex {
		t.Fatalf("%s and %s", same, hex)
	}
	for _, c := range []*images{i, other} {
		c.configure(s.url(), secretKey, "")
	}
	i.awaitCopies(2)
	other.awaitCopies(1)
	i.head.MustTrivet("delete", "image", "i1")
	again := func(what string, try func() error) { // the bucket is listed once after a start
		i.Helper()
		i.head.Stop()
		i.head.Up()
		i.head.Await(what, try)
	}
	exists := func(path string) error { _, err := os.Stat(path); return err }
	mark := i.object("unused", hex)
	again("it is marked", func() error { return exists(mark) })
	if err := exists(i.object("images", hex)); err != nil {
		t.Errorf("it is removed at once: %v", err)
	}
	week := time.Now().Add(-8 * 24 * time.Hour)
	i.must(os.Chtimes(mark, week, week))
	i.configure(s.url(), secretKey, "    suspend: true\n")
	i.head.Stop()
	i.head.Up()
	r, _ := i.head.Trivet("status", "--invariant", "blobs")
	if !strings.Contains(r.All, "it is suspended") || !strings.Contains(r.All, "trivet patch site site") {
		t.Errorf("status: %s", r.All)
	}
	i.must(exists(i.object("images", hex)))
	i.must(os.Truncate(i.object("images", kept), 3))
	r, err := i.head.Trivet("blob", "repair", "sha256:"+kept)
	if err == nil || !strings.Contains(r.All, "spec.blobs.suspend of the site is set") {
		t.Errorf("repaired: %v: %s", err, r.All)
	}
	i.configure(s.url(), secretKey, "    suspend: false\n")
	i.head.Await("it is removed", func() error {
		for _, path := range []string{mark, i.object("images", hex), i.object("images", hex+".chunks")} {
			if exists(path) == nil {
				return fmt.Errorf("%s is there", path)
			}
		}
		return nil
	})
	i.awaitCopies(1) // the truncated one was written again
	for _, path := range []string{i.object("images", kept), other.object("images", hex),
		other.object("images", hex+".chunks")} {
		i.must(exists(path))
	}
	other.expectCopies(hex, trivet.CopyGood, trivet.CopyGood, "check", "--deep")
	i.expectCopies(kept, trivet.CopyGood, trivet.CopyGood, "check", "--deep")
}

// A copy that is interrupted by the death of the head is continued: parts that the server has are not sent again.
func TestCopyIsContinued(t *testing.T) {
	t.Parallel()
	i := newImages(t, newServer(t))
	var lock sync.Mutex
	sent, blocked := map[string]int{}, true
	released := make(chan struct{})
	front := i.server.proxy(func(r *http.Request) {
		part := r.URL.Query().Get("partNumber")
		if r.Method != http.MethodPut || part == "" {
			return
		}
		lock.Lock()
		sent[part]++
		wait := blocked && part == "3"
		lock.Unlock()
		if wait {
			<-released
		}
	}, nil)
	hex := i.importImage("i1", 40*mib)
	i.configure(front, secretKey, "")
	i.head.Await("two parts are there", func() error {
		lock.Lock()
		defer lock.Unlock()
		if n := len(i.server.parts()); n < 2 || sent["3"] == 0 {
			return fmt.Errorf("%d parts are there: %v", n, sent)
		}
		return nil
	})
	i.head.Kill()
	lock.Lock()
	blocked = false
	lock.Unlock()
	close(released)
	i.head.Up()
	i.awaitCopies(1)
	lock.Lock()
	defer lock.Unlock()
	if sent["1"] != 1 || sent["2"] != 1 || sent["3"] < 1 {
		t.Errorf("parts were sent %v times", sent)
	}
	i.expectCopies(hex, trivet.CopyGood, trivet.CopyGood, "check", "--deep")
	i.server.expectNoUploads()
}
