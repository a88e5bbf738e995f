package cluster

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// A long link delivers all frames, complete, and not too early.
func TestDelay(t *testing.T) {
	f, err := newFabric()
	if err != nil {
		t.Fatal(err)
	}
	defer f.unplug()
	if err := f.plug("far", netip.MustParseAddr("10.99.0.9")); err != nil {
		t.Fatal(err)
	}
	late := 100 * time.Millisecond
	undo, err := f.delay("far", late)
	if err != nil {
		t.Fatal(err)
	}
	if took := f.fetch(t, "far"); took < 3*late { // SYN, its answer, and data
		t.Errorf("a fetch over a link that is %s long took %s", late, took)
	}
	if err := undo(); err != nil {
		t.Fatal(err)
	}
	f.fetch(t, "far") // it is as before
}

// fetch lets a port fetch some megabytes from the switch, and returns how long that took.
func (f *fabric) fetch(t *testing.T, port string) time.Duration {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(operator, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	data := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data)
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = conn.Write(data)
			_ = conn.Close()
		}
	}()
	began := time.Now()
	cmd := testhead.Command(port, "timeout", "30", "bash", "-c",
		fmt.Sprintf("sha256sum </dev/tcp/%s/%d", operator, l.Addr().(*net.TCPAddr).Port))
	out, err := cmd.CombinedOutput()
	want := sha256.New()
	_, _ = want.Write(data)
	if got := string(out); err != nil || got != fmt.Sprintf("%x  -\n", want.Sum(nil)) {
		t.Fatalf("%v: got %q", err, got)
	}
	return time.Since(began)
}
