package tftp

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// FuzzRequest: what parses is within bounds, and writing it parses to the same.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x00\x01undionly.kpxe\x00octet\x00tsize\x000\x00blksize\x001456\x00"))
	f.Add([]byte("\x00\x02../../etc/passwd\x00OCTET\x00"))
	f.Add([]byte("\x00\x01f\x00netascii\x00"))
	f.Add([]byte("\x00\x01f\x00octet\x00windowsize\x0016\x00timeout\x002\x00BLKSIZE\x0099999\x00junk"))
	f.Add([]byte("\x00\x01f\x00octet\x00blksize\x00-1\x00tsize\x00999999999999999999999\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			if !errors.Is(err, trivet.ErrInvalid) {
				t.Fatalf("error %v is of no kind", err)
			}
			return
		}
		if r.name == "" || len(r.name) > maxName || strings.Contains(r.name, "\x00") {
			t.Fatalf("name %q", r.name)
		}
		within(t, r.options)
		again, err := parseRequest(r.append(nil))
		if err != nil || again != r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
		a := r.options.agree(1<<40, 1468)
		within(t, a)
		if a.block()*a.window() > maxWindowBytes || a.BlockSize > max(r.options.BlockSize, 0) {
			t.Fatalf("agreed to %+v for %+v", a, r.options)
		}
	})
}

func within(t *testing.T, o Options) {
	t.Helper()
	if o.BlockSize != 0 && (o.BlockSize < minBlock || o.BlockSize > maxBlock) || o.Window < 0 || o.Window > 65535 ||
		o.Timeout < 0 || o.Timeout > 255*time.Second || o.Size < 0 {
		t.Fatalf("options %+v", o)
	}
}
