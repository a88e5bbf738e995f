package replica_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/peer"
)

// Heads of a cluster that was recovered get blobs from each other.
func TestBlobsAfterARecovery(t *testing.T) {
	s := newSite(t, 2)
	s.incarnation = "7-x"
	ref := s.heads[0].put(noise(blob.ChunkBytes + 5))
	if err := s.heads[0].blobs.Secure(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if n := s.holders(ref); n != 2 {
		t.Errorf("acknowledged, and %d heads hold it", n)
	}
}

// Two heads hold an acknowledged blob, all hold a blob that a record refers to, and a head that loses its directory
// pulls it again.
func TestBlobsOnThreeHeads(t *testing.T) {
	s := newSite(t, 3)
	data := noise(3*blob.ChunkBytes + 5)
	ref := s.heads[0].put(data)
	if err := s.heads[0].blobs.Secure(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if n := s.holders(ref); n < 2 {
		t.Fatalf("acknowledged, and %d heads hold it", n)
	}
	if got := must(s.heads[2].blobs.Find(t.Context(), must(blob.ParseDigest(ref.Digest))(t)))(t); got != ref {
		t.Errorf("another head finds %+v", got)
	}
	if most := s.heads[0].blobs.Replicated(t.Context(), ref); most != ref.Bytes {
		t.Errorf("%d of %d bytes are on other heads", most, ref.Bytes)
	}
	s.image(ref)
	for _, h := range s.heads {
		if referenced, err := h.blobs.Ensure(t.Context(), ref.Digest); err != nil || !referenced {
			t.Fatal(referenced, err)
		}
	}
	if n := s.holders(ref); n != 3 {
		t.Fatalf("%d hold it", n)
	}
	lost := s.heads[0] // where it was imported
	lost.stop()
	if err := os.RemoveAll(lost.dir); err != nil {
		t.Fatal(err)
	}
	lost.start()
	if n := lost.metric("trivet_blobs_missing"); n != 1 {
		t.Errorf("%v blobs are missing", n)
	}
	if missing := lost.blobs.Missing(); len(missing) != 1 || missing[0] != ref {
		t.Fatalf("missing: %v", missing)
	}
	if _, err := lost.blobs.Ensure(t.Context(), ref.Digest); err != nil || !lost.holds(ref) {
		t.Fatal(err)
	}
	missing, pulled := lost.metric("trivet_blobs_missing"), lost.metric("trivet_blob_pulled_bytes_total")
	if missing != 0 || pulled != float64(len(data)) {
		t.Errorf("%v are missing, %v bytes were pulled", missing, pulled)
	}
}

// A machine gets a blob from the head that it knows, also where that head does not hold it yet.
func TestBootServesMissingBlob(t *testing.T) {
	s := newSite(t, 3)
	data := noise(5*blob.ChunkBytes + 5)
	ref := s.heads[1].put(data)
	url := s.heads[2].boot.URL + "/blob/" + ref.Digest
	if status, _ := get(t, url, ""); status != http.StatusNotFound {
		t.Errorf("a blob that no record refers to: %d", status)
	}
	s.image(ref)
	if status, body := get(t, url, "bytes=16777210-16777229"); status != http.StatusPartialContent ||
		!bytes.Equal(body, data[16777210:16777230]) {
		t.Errorf("a range: %d, %d bytes", status, len(body))
	}
	if status, body := get(t, url, ""); status != http.StatusOK || !bytes.Equal(body, data) {
		t.Errorf("%d, %d bytes", status, len(body))
	}
	if referenced, err := s.heads[2].blobs.Ensure(t.Context(), ref.Digest); err != nil || !referenced ||
		!s.heads[2].holds(ref) {
		t.Error(referenced, err)
	}
	if n := s.heads[2].metric("trivet_blob_pulled_bytes_total"); n != float64(len(data)) {
		t.Errorf("%v bytes were pulled, of %d", n, len(data))
	}
}

func get(t testing.TB, url, ranges string) (int, []byte) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if ranges != "" {
		req.Header.Set("Range", ranges)
	}
	resp := must(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	return resp.StatusCode, must(io.ReadAll(resp.Body))(t)
}

// With the others down a blob is neither acknowledged nor lost: it is acknowledged when one is up again, or all were
// removed.
func TestSecureNeedsSecondHead(t *testing.T) {
	for name, recover := range map[string]func(s *site){
		"one restarts": func(s *site) { s.heads[2].start() },
		"all are removed": func(s *site) {
			for _, h := range s.heads[1:] {
				s.record(h.name, "", func(rec *trivet.Head) { rec.Status.State = trivet.HeadRemoved })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, 3)
			s.record("head9", trivet.RoleWitness, func(rec *trivet.Head) {
				rec.Status.State, rec.Status.Peer = trivet.HeadMember, "https://"+s.heads[0].addr
			})
			s.heads[1].stop()
			s.heads[2].stop()
			ref := s.heads[0].put(noise(100))
			err := s.heads[0].blobs.Secure(t.Context(), ref)
			var e *trivet.Error
			if !errors.Is(err, trivet.ErrUnavailable) || !errors.As(err, &e) ||
				!strings.Contains(e.Hint, "head remove") || !strings.Contains(err.Error(), "head2") {
				t.Fatal(err)
			}
			if !s.heads[0].holds(ref) {
				t.Fatal("the blob is lost")
			}
			recover(s)
			if err := s.heads[0].blobs.Secure(t.Context(), ref); err != nil {
				t.Error(err)
			}
		})
	}
}

// A single full head acknowledges at once, also beside a witness.
func TestSecureAlone(t *testing.T) {
	s := newSite(t, 1)
	s.record("head1", trivet.RoleWitness, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadMember, "https://127.0.0.1:1"
	})
	s.record("head2", trivet.RoleVoter, func(rec *trivet.Head) {
		rec.Status.State, rec.Status.Peer = trivet.HeadJoining, "https://127.0.0.1:1"
	})
	if err := s.heads[0].blobs.Secure(t.Context(), s.heads[0].put(noise(100))); err != nil {
		t.Error(err)
	}
}

// Faulty heads block neither an acknowledgement nor a pull, and their content is never used.
func TestBlobsWithFaultyHeads(t *testing.T) {
	data := noise(2*blob.ChunkBytes + 5)
	bad := bytes.Clone(data)
	bad[blob.ChunkBytes+1] ^= 1
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"hangs":  func(http.Handler) http.Handler { return http.HandlerFunc(hang) },
		"fails":  func(http.Handler) http.Handler { return http.HandlerFunc(fail) },
		"floods": func(http.Handler) http.Handler { return http.HandlerFunc(flood) },
		"claims to hold it": func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintf(w, `{"ref":{"digest":%q,"bytes":1,"chunks":%q}}`, blob.Digest{1}, blob.Digest{1})
			})
		},
		"corrupts": content(func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.bin", time.Time{}, bytes.NewReader(bad))
		}),
		"aborts": content(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(data)))
			w.Write(data[:blob.ChunkBytes+7])
			panic(http.ErrAbortHandler)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, 3)
			ref := s.heads[0].put(data)
			s.heads[1].put(data)
			s.heads[1].inject(wrap)
			if err := s.heads[2].blobs.Secure(t.Context(), ref); err != nil || !s.heads[2].holds(ref) {
				t.Errorf("from one good head of two: %v", err)
			}
			s.heads[1].stop()
			other := s.heads[0].put(data[1:])
			s.heads[1].start()
			if err := s.heads[0].blobs.Secure(t.Context(), other); err != nil || s.holders(other) < 2 {
				t.Errorf("to one good head of two: %v", err)
			}
		})
	}
}

func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // without it net/http does not notice that the client closes
	<-r.Context().Done()
}

func fail(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }

func flood(w http.ResponseWriter, _ *http.Request) {
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			return
		}
	}
}

// Only members that are full heads have access.
func TestBlobAccess(t *testing.T) {
	s := newSite(t, 2)
	ref := s.heads[0].put(noise(10))
	s.record("head8", trivet.RoleWitness, func(rec *trivet.Head) { rec.Status.State = trivet.HeadMember })
	s.record("head9", trivet.RoleVoter, func(rec *trivet.Head) { rec.Status.State = trivet.HeadRemoved })
	foreign := &site{t: t, keys: must(auth.Init(filepath.Join(t.TempDir(), "keys"), "c1"))(t)}
	for name, c := range map[string]struct {
		cert   *tls.Certificate
		status int
	}{
		"member":         {s.heads[1].cert, http.StatusOK},
		"no certificate": {nil, http.StatusForbidden},
		"witness": {s.certify(auth.Peer{Name: "head8", Role: auth.PeerWitness, Host: "127.0.0.1"}),
			http.StatusForbidden},
		"removed":            {s.certify(auth.Peer{Name: "head9", Role: auth.PeerHead}), http.StatusForbidden},
		"of no record":       {s.certify(auth.Peer{Name: "head7", Role: auth.PeerHead}), http.StatusForbidden},
		"of another cluster": {foreign.certify(auth.Peer{Name: "head1", Role: auth.PeerHead}), http.StatusForbidden},
	} {
		cfg := s.keys.CA.PeerTLS(func() (*tls.Certificate, error) {
			if c.cert == nil {
				return &tls.Certificate{}, nil
			}
			return c.cert, nil
		})
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}}
		resp := must(client.Get("https://" + s.heads[0].addr + peer.Prefix + "blobs/content/blob/" + ref.Digest))(t)
		resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("%s: content: %d", name, resp.StatusCode)
		}
		for _, path := range []string{"stat", "pull", "delete"} {
			resp := must(client.Post("https://"+s.heads[0].addr+peer.Prefix+"blobs/"+path, "application/json",
				strings.NewReader(`{"digest":"`+blob.Digest{1}.String()+`"}`)))(t)
			resp.Body.Close()
			if (resp.StatusCode == http.StatusOK) != (c.status == http.StatusOK) {
				t.Errorf("%s: %s: %d", name, path, resp.StatusCode)
			}
		}
		client.CloseIdleConnections()
	}
	if !s.heads[0].holds(ref) {
		t.Error("the blob was deleted")
	}
}

func TestDeleteEverywhere(t *testing.T) {
	s := newSite(t, 3)
	ref := s.heads[0].put(noise(100))
	if err := s.heads[0].blobs.Secure(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	d := must(blob.ParseDigest(ref.Digest))(t)
	if err := s.heads[2].blobs.Delete(t.Context(), d); err != nil {
		t.Error(err)
	}
	if n := s.holders(ref); n != 0 {
		t.Errorf("%d hold it", n)
	}
	if err := s.heads[2].blobs.Delete(t.Context(), d); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if _, err := s.heads[1].blobs.Find(t.Context(), d); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("found: %v", err)
	}
	if err := s.heads[1].blobs.Secure(t.Context(), ref); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("acknowledged: %v", err)
	}
}

// BenchmarkPull measures one head pulling an image from another over TLS.
func BenchmarkPull(b *testing.B) {
	s := newSite(b, 2)
	data := noise(256 << 20)
	ref := s.heads[0].put(data)
	d := must(blob.ParseDigest(ref.Digest))(b)
	b.SetBytes(ref.Bytes)
	for b.Loop() {
		if err := s.heads[1].blobs.Secure(b.Context(), ref); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.heads[1].store.Delete(d); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
