package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/trivet-project/trivet/test/tftpclient"
)

const (
	tftpBytes  = 16 << 20
	tftpRounds = 5
	tftpFile   = "snponly.efi"
)

// tftp reads one file from a head and from dnsmasq with the same client.
func (b *bench) tftp() error {
	root := filepath.Join(b.dir, "tftp")
	content := make([]byte, tftpBytes)
	rand.Read(content)
	if err := errors.Join(os.MkdirAll(root, 0o755), os.Chmod(b.dir, 0o755),
		os.WriteFile(filepath.Join(root, tftpFile), content, 0o644),
		os.WriteFile(filepath.Join(root, "undionly.kpxe"), content, 0o644)); err != nil { // a head wants both
		return err
	}
	h, _, err := b.startHead(filepath.Join(b.dir, "tftp-head"), "--ipxe", root)
	if err != nil {
		return err
	}
	defer h.close()
	if err := b.network(h); err != nil {
		return err
	}
	dnsmasq, err := b.startServer("udp", 69, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0",
		"--enable-tftp", "--tftp-root="+root, "--user=root", "--pid-file=", "--log-facility=-")
	if err != nil {
		return err
	}
	defer dnsmasq.stop()
	for _, block := range []int{512, 1468} {
		for _, window := range []int{1, 4, 16, 64} {
			if err := b.tftpRow(block, window); err != nil {
				return err
			}
		}
	}
	b.report.note("dnsmasq has no windowsize (RFC 7440): those lines have no peer. " +
		"The client is Trivet's own, for both.")
	return nil
}

func (b *bench) tftpRow(block, window int) error {
	o := tftpclient.Options{BlockSize: block}
	if window > 1 {
		o.Window = window
	}
	get := func(s side) func() (float64, error) { return func() (float64, error) { return b.tftpGet(s, o) } }
	r := row{}
	var err error
	if window == 1 {
		r, err = alternate(tftpRounds, get(ours), get(other))
		r.by, r.bound = "dnsmasq", atLeastPeer(1)
	} else {
		r.ours, err = alone(tftpRounds, get(ours))
	}
	r.what, r.unit = fmt.Sprintf("blksize %d, windowsize %d", block, window), "MB/s"
	b.report.add(r)
	return err
}

func (b *bench) tftpGet(s side, o tftpclient.Options) (float64, error) {
	began := time.Now()
	n, err := tftpclient.Get(b.ctx, netip.MustParseAddrPort(s.address+":69"), tftpFile, io.Discard, o)
	if err == nil && n != tftpBytes {
		err = fmt.Errorf("%d bytes", n)
	}
	return tftpBytes / 1e6 / time.Since(began).Seconds(), err
}
