package heads_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A blob that is imported at one head is held by a second one before it is acknowledged. When a record refers to it,
// all heads fetch it, and a head that lost its directory fetches it again. Meanwhile each of them serves it to
// machines.
func TestBlobs(t *testing.T) {
	t.Parallel()
	h0 := startFirst(t)
	all := []*head{h0, h0.join("head1"), h0.join("head2")}
	data := make([]byte, 40<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	ref, err := h0.client(h0).PutBlob(t.Context(), bytes.NewReader(data), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	holders := 0
	for _, h := range all {
		if h.holds(ref) {
			holders++
		}
	}
	if holders < 2 {
		t.Fatalf("acknowledged, and %d hold it", holders)
	}
	h0.createImage(all[2], "image0", ref)
	for _, h := range all {
		h.mustServeBlob(ref, data)
	}
	for _, h := range all {
		h.Kill()
		if err := os.RemoveAll(filepath.Join(h.Dir, "blobs")); err != nil {
			t.Fatal(err)
		}
		h.Up()
		h.mustServeBlob(ref, data)
	}

	// Without a second head an upload waits, and loses nothing.
	all[1].Kill()
	all[2].Kill()
	late := data[:5<<20]
	ended := make(chan error, 1)
	go func() {
		ref, err := h0.client(h0).PutBlob(t.Context(), bytes.NewReader(late), client.PutOptions{Digest: digestOf(late)})
		if err == nil && !all[1].holds(ref) {
			err = fmt.Errorf("acknowledged, and only head0 holds it")
		}
		ended <- err
	}()
	h0.Await("it has the content", func() error {
		_, err := os.Stat(filepath.Join(h0.Dir, "blobs", digestOf(late)[7:]))
		return err
	})
	select {
	case err := <-ended:
		t.Fatalf("one head acknowledged alone: %v", err)
	default:
	}
	all[1].Up()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// createImage creates the record of a blob at another head than the one that received the blob.
func (h *head) createImage(at *head, name string, ref trivet.BlobRef) {
	h.Helper()
	i := &trivet.Image{Meta: trivet.Meta{Project: "default", Name: name},
		Spec: trivet.ImageSpec{Format: "raw", Blob: ref}}
	if _, err := client.Of[trivet.Image](h.client(at)).Create(h.Context(), i); err != nil {
		h.Fatal(err)
	}
}

// holds reports whether the head has a complete blob, and its chunk table, on its disk.
func (h *head) holds(ref trivet.BlobRef) bool {
	file := filepath.Join(h.Dir, "blobs", ref.Digest[7:])
	data, err := os.ReadFile(file)
	table, errTable := os.ReadFile(file + ".chunks")
	return err == nil && errTable == nil && digestOf(data) == ref.Digest && digestOf(table) == ref.Chunks
}

// mustServeBlob expects a blob from the head's boot server at once, and on its disk in the end.
func (h *head) mustServeBlob(ref trivet.BlobRef, data []byte) {
	h.Helper()
	h.Await("its boot server serves the blob", func() error { // it may not know the record yet
		resp, err := http.Get("http://" + h.Address + ":7481/blob/" + ref.Digest)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Equal(got, data)) {
			err = fmt.Errorf("%s, %d bytes", resp.Status, len(got))
		}
		return err
	})
	h.Await("it holds the blob", func() error {
		if !h.holds(ref) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}
