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

// What is imported at one head another one holds as well, before it is acknowledged; when a record refers to it all get it, and a
// head that lost its folder gets it again. A machine asks any of them meanwhile.
func TestBlobs(t *testing.T) {
	h0 := newHead(t, "head0")
	h0.up()
	all := []*head{h0, h0.join("head1"), h0.join("head2")}
	data := make([]byte, 40<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	ref, err := h0.asks(patience, h0).PutBlob(t.Context(), bytes.NewReader(data), client.PutOptions{})
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
	h0.image(all[2], "image0", ref)
	for _, h := range all {
		h.gets(ref, data)
	}
	for _, h := range all {
		h.kill()
		if err := os.RemoveAll(filepath.Join(h.dir, "blobs")); err != nil {
			t.Fatal(err)
		}
		h.up()
		h.gets(ref, data)
	}

	// Without a second head an upload waits, and loses nothing.
	all[1].kill()
	all[2].kill()
	late := data[:5<<20]
	ended := make(chan error, 1)
	go func() {
		ref, err := h0.asks(patience, h0).PutBlob(t.Context(), bytes.NewReader(late), client.PutOptions{Digest: digestOf(late)})
		if err == nil && !all[1].holds(ref) {
			err = fmt.Errorf("acknowledged, and only head0 holds it")
		}
		ended <- err
	}()
	h0.await("it has the content", func() error {
		_, err := os.Stat(filepath.Join(h0.dir, "blobs", digestOf(late)[7:]))
		return err
	})
	select {
	case err := <-ended:
		t.Fatalf("one head acknowledged alone: %v", err)
	default:
	}
	all[1].up()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// image makes a record of a blob, at another head than it was sent to.
func (h *head) image(at *head, name string, ref trivet.BlobRef) {
	h.Helper()
	i := &trivet.Image{Meta: trivet.Meta{Name: name}, Spec: trivet.ImageSpec{Format: "raw", Blob: ref}}
	if _, err := client.Of[trivet.Image](h.asks(patience, at)).Create(h.Context(), i); err != nil {
		h.Fatal(err)
	}
}

// holds says whether the head has all of a blob, and its chunk table, on its disk.
func (h *head) holds(ref trivet.BlobRef) bool {
	file := filepath.Join(h.dir, "blobs", ref.Digest[7:])
	data, err := os.ReadFile(file)
	table, errTable := os.ReadFile(file + ".chunks")
	return err == nil && errTable == nil && digestOf(data) == ref.Digest && digestOf(table) == ref.Chunks
}

// gets wants a blob from the head's boot door at once, and on its disk in the end.
func (h *head) gets(ref trivet.BlobRef, data []byte) {
	h.Helper()
	h.await("its boot door gives the blob", func() error { // it may not know the record yet
		resp, err := http.Get("http://" + h.host + ":7481/blob/" + ref.Digest)
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
	h.await("it holds the blob", func() error {
		if !h.holds(ref) {
			return fmt.Errorf("not yet")
		}
		return nil
	})
}
