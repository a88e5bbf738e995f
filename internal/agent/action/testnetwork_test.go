package action

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
)

// ports is the kernel's files of a machine with two ports, the second without a link, and one to its BMC.
func ports(change map[string]string) fstest.MapFS {
	files := map[string]string{"eth0/address": "52:54:00:00:00:01\n", "eth0/carrier": "1\n", "eth0/speed": "10000\n",
		"eth0/duplex": "full\n", "eth0/statistics/rx_crc_errors": "3\n", "eth0/carrier_down_count": "1\n",
		"eth0/device/vendor": "", "eth1/address": "52:54:00:00:00:02\n", "eth1/speed": "-1\n", "eth1/duplex": "unknown\n",
		"eth1/device/vendor": ""}
	maps.Copy(files, change)
	m := fstest.MapFS{}
	for name, data := range files {
		m["sys/class/net/"+name] = &fstest.MapFile{Data: []byte(data)}
	}
	return m
}

// online is a machine that fetches from an HTTP server, which has a blob of a size.
func online(t *testing.T, size int) *bench {
	t.Helper()
	content := strings.Repeat("the initramfs ", size/14)
	store, err := blob.Open(t.TempDir(), blob.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	ref, err := store.Put(t.Context(), strings.NewReader(content), trivet.BlobRef{})
	must(t, err)
	head := httptest.NewServer(store.Handler())
	t.Cleanup(head.Close)
	b := onFile(t, 1<<20)
	b.run.Initrd, b.run.Network = &ref, &trivet.RunNetwork{MAC: "52:54:00:00:00:01"}
	b.env.Fetch = func(ctx context.Context, _ []string, ref trivet.BlobRef) (io.ReadCloser, error) {
		if ref.Chunks != "" {
			t.Error("parts are verified, and fetched again where they are wrong")
		}
		return (&blob.Fetcher{}).Fetch(ctx, []string{head.URL}, ref)
	}
	b.env.Sys = ports(nil)
	return b
}

func TestNetwork(t *testing.T) {
	b := online(t, 5<<20)
	must(t, b.try(t.Context(), "test-network", map[string]any{"transfer": "12MB"}))
	b.has("was fetched by the port eth0: 14 MiB at ", "each time with the right digest",
		"eth0 (52:54:00:00:00:01, ): link, 10000 Mbit/s, full duplex; meanwhile received 0 KiB",
		"eth1 (52:54:00:00:00:02, ): no link; ")
	if !strings.HasPrefix(b.note, "14 MiB at ") || !strings.HasSuffix(b.note, "; 2 ports, 1 with a link") {
		t.Errorf("note %q", b.note)
	}
	small := online(t, 14)
	must(t, small.try(t.Context(), "test-network", map[string]any{"transfer": "64GB", "minRate": "900TB"}))
	small.has("has 14 bytes only, and is fetched once; no rate is judged")
	b.env.Sys = nil // a simulated machine
	must(t, b.try(t.Context(), "test-network", map[string]any{"transfer": "1MB"}))
	b.run.Network = nil
	must(t, b.try(t.Context(), "test-network", map[string]any{"transfer": "1MB"}))
}

// Each fault of a port is found, and is one of the machine.
func TestFaultyPorts(t *testing.T) {
	usb := map[string]string{"usb0/address": "52:54:00:00:00:03\n", "usb0/carrier": "1\n", "usb0/speed": "10\n",
		"usb0/device/vendor": ""}
	for name, c := range map[string]struct {
		before, after map[string]string
		with          map[string]any
		want          string
	}{
		"none":        {with: map[string]any{"links": 1, "minSpeed": 10000, "minRate": "1KB"}},
		"half duplex": {before: map[string]string{"eth0/duplex": "half\n"}, want: "eth0 runs at half duplex"},
		"slow": {before: map[string]string{"eth0/speed": "100\n"}, with: map[string]any{"minSpeed": 10000},
			want: "eth0 runs at 100 Mbit/s, and minSpeed is 10000"},
		"few links": {with: map[string]any{"links": 2}, want: "1 of 2 ports have a link, and 2 must"},
		"damaged frames": {after: map[string]string{"eth0/statistics/rx_crc_errors": "5\n"},
			want: "2 damaged frames and lost links were counted during the test, and 0 are allowed; at the ports eth0"},
		"allowed frames": {after: map[string]string{"eth0/statistics/rx_crc_errors": "5\n"},
			with: map[string]any{"errors": 2}},
		"dropped frames are none": {after: map[string]string{"eth0/statistics/rx_dropped": "5\n"}},
		"a lost link":             {after: map[string]string{"eth1/carrier_down_count": "1\n"}, want: "at the ports eth1"},
		"rate":                    {with: map[string]any{"minRate": "900TB"}, want: "MB/s, and minRate is 900000000 MB/s"},
		"the BMC's port is slow":  {before: usb, with: map[string]any{"minSpeed": 10000}},
	} {
		b := online(t, 1<<20)
		sys := ports(c.before)
		if len(c.before) > 0 && c.before["usb0/speed"] != "" {
			linkPort(sys, "usb0", "pci0000:00/0000:00:14.0/usb1/1-2/net/usb0")
		}
		b.env.Sys = sys
		next := b.env.Fetch
		b.env.Fetch = func(ctx context.Context, urls []string, ref trivet.BlobRef) (io.ReadCloser, error) {
			maps.Copy(sys, ports(c.after))
			return next(ctx, urls, ref)
		}
		if c.before != nil && c.after == nil {
			b.env.Fetch = next
		}
		with := map[string]any{"transfer": "1MB"}
		maps.Copy(with, c.with)
		if c.want != "" {
			b.fail("test-network", with, trivet.FaultMachine, true, c.want)
		} else if err := b.try(t.Context(), "test-network", with); err != nil {
			t.Errorf("%s: %v\n%s", name, err, b.log.String())
		}
	}
}

// linkPort moves a port's files to its device's directory, with a link as the kernel has it.
func linkPort(m fstest.MapFS, name, device string) {
	for file, data := range maps.Clone(m) {
		if rest, ok := strings.CutPrefix(file, "sys/class/net/"+name+"/"); ok {
			m["sys/devices/"+device+"/"+rest] = data
			delete(m, file)
		}
	}
	m["sys/class/net/"+name] = &fstest.MapFile{Data: []byte("../../devices/" + device), Mode: fs.ModeSymlink}
}

// What arrives with another digest is a fault of the machine; a head that does not answer is one of the network.
func TestFaultyTransfers(t *testing.T) {
	b := online(t, 1<<20)
	b.env.Fetch = func(context.Context, []string, trivet.BlobRef) (io.ReadCloser, error) {
		return io.NopCloser(iotest.ErrReader(fmt.Errorf("%w: the digest of the data is x", trivet.ErrInvalid))), nil
	}
	b.fail("test-network", nil, trivet.FaultMachine, true, "what the port eth0 received is not what the head has sent")
	b.env.Fetch = func(context.Context, []string, trivet.BlobRef) (io.ReadCloser, error) {
		return io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF)), nil
	}
	b.fail("test-network", nil, trivet.FaultNetwork, false, "network: after 0 MiB: unexpected EOF")
	b.has("eth0 (52:54") // also then
	b.run.Initrd = nil
	b.fail("test-network", nil, trivet.FaultConfiguration, true, "trivet platform usage")
}
