package heads_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/test/faultfs"
)

// Of three heads, the disk of one fails: at first where its blobs and logs are, then where its store is. What it cannot
// read it fetches from the others, what it cannot write is accepted by another one, the status names it at each head,
// and no acknowledged write is lost. Then it ends, and is replaced by the command that it names.
func TestFailingDisk(t *testing.T) {
	t.Parallel()
	disk := faultfs.New(t)
	h0, l := startWithLedger(t)
	h1, h2 := h0.join("head1"), newHead(t, "head2")
	h2.Dir = filepath.Join(disk.Dir(), "data")
	h2.Up("--join", h0.API(), "--token", h0.token())
	h0.awaitMember("head2")
	l.cl = h0.client(h2, h0, h1)
	l.write()
	data := make([]byte, 9<<20)
	rand.NewChaCha8([32]byte{1}).Read(data)
	ref, err := h0.client(h0).PutBlob(t.Context(), bytes.NewReader(data), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h0.createImage(h0, "image0", ref)
	h2.mustServeBlob(ref, data)

	before := h2.inode(ref)
	disk.Set(faultfs.Faults{ReadError: syscall.EIO, Match: ref.Digest[7:] + "*", From: 5 << 20,
		To: 5<<20 + 1})
	h0.Await("head2 repairs its copy by a new file", func() error {
		out, err := h0.Trivet("blob", "repair")
		if h2.inode(ref) == before {
			return fmt.Errorf("not yet: %s, %v", out.All, err)
		}
		return nil
	})
	disk.Set(faultfs.Faults{})
	h2.mustServeBlob(ref, data)
	h0.mustReport([]*head{h0, h1, h2}, "disk: a disk of head2 fails: blobs: read ", "trivet head replace head2")

	disk.Set(faultfs.Faults{WriteError: syscall.EIO, SyncError: syscall.EIO, Under: "data/blobs"})
	image := writeFile(t, string(data[:3<<20]))
	alone, err := h0.TrivetAt(h2.Head, "image", "import", image, "--name", "refused", "--format", "raw")
	if err == nil || !strings.Contains(alone.All, "input/output error") || !strings.Contains(alone.All, "another head") {
		t.Errorf("an import at the head whose disk fails: %s, %v", alone.All, err)
	}
	ref, err = h0.client(h2, h0, h1).PutBlob(t.Context(), bytes.NewReader(data[:4<<20]), client.PutOptions{})
	if err != nil || !h0.holds(ref) || !h1.holds(ref) {
		t.Errorf("an import at all heads: %v", err)
	}
	l.write()

	disk.Set(faultfs.Faults{SyncError: syscall.EIO, Match: "*.wal"})
	l.write() // another head serves it
	h2.ExpectFailure("the disk of "+h2.Dir, "input/output error", "hint:", "trivet head replace head2")
	l.write()
	l.read(h0.client(h0))
	h0.mustReport([]*head{h0, h1}, "heads: head2 does not respond", "trivet head replace head2")
	h2.Start()
	h2.ExpectFailure("the disk of "+h2.Dir, "input/output error", "hint:", "trivet head replace head2")
	token := h0.token("replace", "head2")
	h3 := newHead(t, "head3")
	h3.Up("--join", h0.API(), "--token", token)
	h0.awaitMember("head3")
	l.cl = h0.client(h3, h0, h1)
	l.write()
	l.read(h0.client(h3))
}

// inode returns the number of a blob's file on the head's disk; 0: there is none.
func (h *head) inode(ref trivet.BlobRef) uint64 {
	var st syscall.Stat_t
	if err := syscall.Stat(filepath.Join(h.Dir, "blobs", ref.Digest[7:]), &st); err != nil {
		return 0
	}
	return st.Ino
}

// mustReport waits until the status, at each of some heads, has an invariant that is broken, with this remedy.
func (h *head) mustReport(at []*head, summary, remedy string) {
	h.Helper()
	for _, o := range at {
		h.Await("the status", func() error {
			r, _ := h.status(o)
			var got []string
			for _, i := range r.Invariants {
				text := i.Name + ": " + i.Summary
				if i.State == trivet.InvariantBroken && strings.HasPrefix(text, summary) &&
					strings.Contains(i.Remedy, remedy) {
					return nil
				}
				if i.State != trivet.InvariantHolds {
					got = append(got, text+" | "+i.Remedy)
				}
			}
			return errors.New("at " + o.Name + ": " + strings.Join(got, "; "))
		})
	}
}
