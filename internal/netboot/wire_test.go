package netboot_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/blob"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/tftp"
	"github.com/trivet-project/trivet/test/tftpclient"
)

// until runs a server until the test ends.
func (r *fixture) until(t testing.TB, serve func(ctx context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	t.Cleanup(func() { stop(); ended.Wait() })
	ended.Go(func() {
		if err := serve(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// serve runs the listeners of the server on loopback until the test ends.
func (r *fixture) serve(t testing.TB) (dhcpAt, tftpAt netip.AddrPort, url string) {
	t.Helper()
	d, err := dhcp.Listen(dhcp.Config{Handler: r.Server, Address: netip.MustParseAddrPort("127.0.0.1:0")})
	must(t, err)
	r.until(t, d.Serve)

	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	must(t, err)
	r.until(t, func(ctx context.Context) error { return (&tftp.Server{Open: r.OpenTFTP}).Serve(ctx, conn) })

	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	web := r.HTTPServer()
	r.until(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { web.Close() })()
		return web.Serve(l)
	})
	return d.Addrs()[0], conn.LocalAddr().(*net.UDPAddr).AddrPort(), "http://" + l.Addr().String()
}

// machineConn is a client's socket, which acts as its own relay. Its network's addresses are this host's.
func machineConn(t testing.TB, mac string, options ...dhcp.Option) (net.PacketConn, dhcp.ClientConfig) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	hw, err := net.ParseMAC(mac)
	must(t, err)
	return conn, dhcp.ClientConfig{MAC: hw, Relay: netip.MustParseAddr("127.0.0.1"),
		Options: append(options, dhcp.Addrs(dhcp.OptSubnetSelect, ip("127.9.9.1")))}
}

// A whole boot over real sockets: firmware, iPXE, the script's files, the installer's own lease.
func TestBootOverTheWire(t *testing.T) {
	blobs, err := blob.Open(t.TempDir(), blob.Options{})
	must(t, err)
	kernel, initrd := bytes.Repeat([]byte("kernel"), 1<<10), bytes.Repeat([]byte("initrd"), 2<<20)
	kernelRef, err := blobs.Put(t.Context(), bytes.NewReader(kernel), trivet.BlobRef{})
	must(t, err)
	initrdRef, err := blobs.Put(t.Context(), bytes.NewReader(initrd), trivet.BlobRef{})
	must(t, err)
	r := newFixture(t)
	r.withPlatform(t)
	r.write(t, func(tx *store.Tx) error {
		p, err := r.Platforms.In(tx).Get("debian")
		must(t, err)
		p.Spec.Kernel, p.Spec.Initrd = kernelRef, initrdRef
		here := &trivet.Network{Meta: trivet.Meta{Name: "here"}, Spec: trivet.NetworkSpec{
			CIDR:   netip.MustParsePrefix("127.9.9.0/24"),
			Ranges: []trivet.Range{span("127.9.9.100", "127.9.9.199", "")}}}
		return errors.Join(r.Platforms.In(tx).Put(p), r.Networks.In(tx).Create(here))
	})
	r.open(t, netboot.Config{Blobs: blobs.Handler()})
	r.run(t, trivet.WorkflowBooting)
	dhcpAt, tftpAt, url := r.serve(t)

	conn, firmware := machineConn(t, knownMAC, dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000"),
		dhcp.Option{Code: dhcp.OptArch, Value: []byte{0, 0}})
	lease, err := dhcp.Exchange(t.Context(), conn, net.UDPAddrFromAddrPort(dhcpAt), firmware)
	must(t, err)
	if lease.BootFile != "undionly.kpxe" || lease.NextServer.String() != "127.0.0.1" || lease.Address.Bits() != 24 {
		t.Errorf("firmware got %+v", lease)
	}
	var program bytes.Buffer
	_, err = tftpclient.Get(t.Context(), tftpAt, lease.BootFile, &program, tftpclient.Options{})
	must(t, err)
	onDisk, err := os.ReadFile(filepath.Join(netboot.DefaultIPXEDir, lease.BootFile))
	must(t, err)
	if !bytes.Equal(program.Bytes(), onDisk) {
		t.Errorf("TFTP sent %d bytes, the file has %d", program.Len(), len(onDisk))
	}

	r.stepsAfter(t, 1)
	r.run(t, trivet.WorkflowBooting, trivet.StepPowerOn, trivet.StepDHCP)
	conn, loaded := machineConn(t, knownMAC, dhcp.Text(dhcp.OptClass, "PXEClient"),
		dhcp.Text(dhcp.OptUserClass, "iPXE"))
	again, err := dhcp.Exchange(t.Context(), conn, net.UDPAddrFromAddrPort(dhcpAt), loaded)
	must(t, err)
	if again.Address != lease.Address || again.BootFile != "http://127.0.0.1:8080/boot/script/52-54-00-00-00-01" {
		t.Errorf("iPXE got %+v after %s", again, lease.Address)
	}
	own := from(lease.Address.Addr())
	script := fetch(t, own, url+scriptOf(knownMAC))
	for path, want := range map[string][]byte{"/boot/kernel/": kernel, "/boot/initrd/": initrd} {
		if !strings.Contains(script, "set head "+url+"\n") || !strings.Contains(script, "timeout 5000 ${head}"+path) {
			t.Errorf("no %s at the head that was reached, %s, in\n%s", path, url, script)
		}
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(want))
		if got := fetch(t, own, url+path+"52-54-00-00-00-01/"+digest); got != string(want) {
			t.Errorf("%s gave %d bytes, want %d", path, len(got), len(want))
		}
	}
	if got := r.stepsAfter(t, 2); got[0] != "m1 dhcp" || got[1] != "m1 boot-script" || got[2] != "m1 kernel" {
		t.Errorf("seen: %q", got)
	}
}

// from is a client with an address of this host.
func from(a netip.Addr) *http.Client {
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
}

func fetch(t testing.TB, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", url, resp.Status)
	}
	return body(t, resp)
}

// A machine that disconnects in the middle of its initramfs has not received it.
func TestIncompleteInitrdIsNoProgress(t *testing.T) {
	r := newFixture(t)
	r.open(t, netboot.Config{Blobs: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		for {
			if _, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 1<<20))); err != nil {
				r.reports <- struct{}{}
				return
			}
		}
	})})
	r.run(t, trivet.WorkflowBooting)
	_, _, url := r.serve(t)
	resp, err := http.Get(url + "/boot/initrd/52-54-00-00-00-01/sha256:b")
	must(t, err)
	_, err = io.CopyN(io.Discard, resp.Body, 1<<20)
	must(t, err)
	resp.Body.Close()
	if got := r.stepsAfter(t, 1); len(got) != 0 { // reported at the end of the blob handler
		t.Errorf("seen: %q", got)
	}
}

func TestHostileNames(t *testing.T) {
	r := newFixture(t)
	_, tftpAt, url := r.serve(t)
	for _, name := range []string{"../../etc/passwd", "/etc/passwd", "..", "", ".", "ipxe.iso",
		"undionly.kpxe/../../../etc/passwd", "undionly.kpxe\xff", strings.Repeat("a", 255)} {
		var got bytes.Buffer
		if _, err := tftpclient.Get(t.Context(), tftpAt, name, &got, tftpclient.Options{}); err == nil ||
			got.Len() > 0 {
			t.Errorf("TFTP of %q: %d bytes, %v", name, got.Len(), err)
		}
	}
	for _, path := range []string{"/", "/etc/passwd", "/ipxe/", "/ipxe/ipxe.iso", "/ipxe/..%2f..%2fetc%2fpasswd",
		"/ipxe/%2e%2e/%2e%2e/etc/passwd"} {
		resp, err := http.Get(url + path)
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	if got := fetch(t, http.DefaultClient, url+"/ipxe/snponly.efi"); !strings.HasPrefix(got, "MZ") {
		t.Error("HTTP boot serves no EFI program")
	}
	if got := fetch(t, http.DefaultClient, url+"/livez"); got != "ok\n" {
		t.Errorf("livez: %q", got)
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	_, err := netboot.New(netboot.Config{IPXEDir: t.TempDir()})
	if !errors.Is(err, trivet.ErrNotFound) || !strings.Contains(err.Error(), "apt-get install ipxe") {
		t.Error(err)
	}
}
