package heads_test

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// A head whose data directory was replaced by an older copy does not start: its member would vote for a log without
// writes that it has acknowledged. With its newer data it starts.
func TestOlderDataIsRefused(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	h0.join("head2")
	l.write()
	h1.Kill()
	older, newer := h1.Dir+".older", h1.Dir+".newer"
	if out, err := exec.Command("cp", "-a", h1.Dir, older).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	h1.Up()
	h0.awaitMember("head1")
	l.write()
	l.read(h0.client(h1))
	time.Sleep(8 * time.Second) // the others hear what a head has written by pings, later
	h1.Kill()
	rename(t, h1.Dir, newer)
	rename(t, older, h1.Dir)
	h1.Start()
	h1.expectRefusal("it is older data", "head replace")
	if err := os.RemoveAll(h1.Dir); err != nil {
		t.Fatal(err)
	}
	rename(t, newer, h1.Dir)
	h1.Up()
	l.write()
	l.read(h0.client(h1))
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
