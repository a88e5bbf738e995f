package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
)

// BenchmarkServe downloads the same files with the same client from this package's handler and from nginx, each in a
// separate process on loopback: a small program, iPXE, an initramfs, an image. Rounds alternate, so that other load
// affects both; the lower quartiles of the rounds' times are compared. ratio is trivet's throughput divided by nginx's.
func BenchmarkServe(b *testing.B) {
	sizes := []int64{64 << 10, 1 << 20, 32 << 20, 1 << 30}
	dir := b.TempDir()
	must(b, os.Chmod(dir, 0o755))
	s, err := Open(dir, Options{})
	must(b, err)
	refs := map[int64]trivet.BlobRef{}
	for _, size := range sizes {
		refs[size], err = s.Put(b.Context(), io.LimitReader(zeros{}, size), trivet.BlobRef{})
		must(b, err)
		must(b, os.Chmod(s.path(digestOf(b, refs[size])), 0o644)) // nginx's workers run as another user
	}
	must(b, s.Close())
	nginx, trivet := startNginx(b, dir), startTrivet(b, dir)
	for _, size := range sizes {
		d := digestOf(b, refs[size])
		urls := map[string]string{"nginx": nginx + "/" + d.hex(), "trivet": trivet + "/blob/" + d.String()}
		for _, clients := range []int{1, 16} {
			if size > 32<<20 && clients > 1 {
				continue
			}
			name := fmt.Sprintf("bytes=%d/clients=%d", size, clients)
			b.Run(name, func(b *testing.B) { benchBoth(b, urls, size, clients) })
		}
	}
}

// benchBoth downloads from both, in alternating rounds.
func benchBoth(b *testing.B, urls map[string]string, size int64, clients int) {
	tr := &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}
	defer tr.CloseIdleConnections()
	took := map[string][]time.Duration{}
	perRound := int(max(1, 8<<20/size))
	for b.Loop() {
		for _, server := range []string{"nginx", "trivet"} {
			began := time.Now()
			var group errgroup.Group
			for range clients {
				group.Go(func() error { return download(&http.Client{Transport: tr}, urls[server], size, perRound) })
			}
			must(b, group.Wait())
			took[server] = append(took[server], time.Since(began))
		}
	}
	rate := func(server string) float64 {
		times := took[server]
		slices.Sort(times)
		return float64(size*int64(perRound*clients)) / times[len(times)/4].Seconds() / 1e6
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(rate("nginx"), "nginx-MB/s")
	b.ReportMetric(rate("trivet"), "trivet-MB/s")
	b.ReportMetric(rate("trivet")/rate("nginx"), "ratio")
}

func download(client *http.Client, url string, size int64, times int) error {
	buf := make([]byte, 256<<10)
	for range times {
		resp, err := client.Get(url)
		if err != nil {
			return err
		}
		n, err := io.CopyBuffer(onlyWriter{io.Discard}, onlyReader{resp.Body}, buf)
		if err = errors.Join(err, resp.Body.Close()); err != nil || n != size {
			return fmt.Errorf("%s, %d bytes: %w", resp.Status, n, err)
		}
	}
	return nil
}

// onlyWriter and onlyReader hide WriteTo and ReadFrom, which copy in small pieces.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// startTrivet serves a store from a separate process of this test binary.
func startTrivet(b *testing.B, dir string) (url string) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeForBenchmark$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), "BLOB_BENCHMARK_DIR="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // the process ends when it is closed
	must(b, err)
	stdout, err := cmd.StdoutPipe()
	must(b, err)
	must(b, cmd.Start())
	b.Cleanup(func() { must(b, errors.Join(stdin.Close(), cmd.Wait())) })
	_, err = fmt.Fscanln(stdout, &url)
	must(b, err)
	return url
}

// TestServeForBenchmark is that process. Without the directory it tests that a blob is served.
func TestServeForBenchmark(t *testing.T) {
	dir := os.Getenv("BLOB_BENCHMARK_DIR")
	if dir == "" {
		s := open(t, Options{})
		ref := put(t, s, noise(100))
		if got, err := quick.all(t, ref, serve(t, s, nil)); err != nil || !bytes.Equal(got, noise(100)) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		return
	}
	s, err := Open(dir, Options{})
	must(t, err)
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	srv := &http.Server{Handler: s.Handler()} // httptest's has hooks that cost time
	go srv.Serve(l)
	fmt.Println("http://" + l.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	must(t, srv.Close())
}

// startNginx serves a directory with the settings that nginx's manual recommends for large files.
func startNginx(b *testing.B, dir string) (url string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nginx cannot choose a free port by itself
	must(b, err)
	addr := l.Addr().String()
	must(b, l.Close())
	work := b.TempDir()
	conf := filepath.Join(work, "nginx.conf")
	must(b, os.WriteFile(conf, []byte(fmt.Sprintf(`daemon off; pid %[1]s/pid; error_log stderr crit;
worker_processes auto; user root;
events { worker_connections 1024; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000;
  client_body_temp_path %[1]s/1; proxy_temp_path %[1]s/2; fastcgi_temp_path %[1]s/3;
  uwsgi_temp_path %[1]s/4; scgi_temp_path %[1]s/5;
  server { listen %[2]s; root %[3]s; }
}`, work, addr, dir)), 0o600))
	cmd := exec.Command("nginx", "-p", work, "-c", conf)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatalf("%v (as root: apt-get install nginx-light)", err)
	}
	b.Cleanup(func() { // by SIGTERM, so that it ends its workers
		must(b, cmd.Process.Signal(os.Interrupt))
		_ = cmd.Wait()
	})
	for range 100 {
		if resp, err := http.Get("http://" + addr); err == nil {
			resp.Body.Close()
			return "http://" + addr
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.Fatal("nginx does not respond")
	return ""
}

// BenchmarkPut stores 256 MiB on stable storage; sha256sum of the same data shows the cost of one digest.
func BenchmarkPut(b *testing.B) {
	const size = 256 << 20
	b.Run("by=sha256sum", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			cmd := exec.Command("sha256sum")
			cmd.Stdin = io.LimitReader(zeros{}, size)
			out, err := cmd.Output()
			must(b, err)
			if !strings.HasSuffix(string(out), "  -\n") {
				b.Fatal(string(out))
			}
		}
	})
	b.Run("by=trivet", func(b *testing.B) {
		s := open(b, Options{})
		b.SetBytes(size)
		for b.Loop() {
			_, err := s.Put(b.Context(), io.LimitReader(zeros{}, size), trivet.BlobRef{Bytes: size})
			must(b, err)
		}
	})
}

// BenchmarkFetch reads 256 MiB over loopback, with and without verification.
func BenchmarkFetch(b *testing.B) {
	const size = 256 << 20
	s := open(b, Options{})
	ref, err := s.Put(b.Context(), io.LimitReader(zeros{}, size), trivet.BlobRef{})
	must(b, err)
	url := serve(b, s, nil)
	b.Run("verified", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			r, err := quick.Fetch(b.Context(), []string{url}, ref)
			must(b, err)
			n, err := io.CopyBuffer(onlyWriter{io.Discard}, onlyReader{r}, make([]byte, 256<<10))
			must(b, errors.Join(err, r.Close()))
			if n != size {
				b.Fatal(n)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			must(b, download(http.DefaultClient, url+"/blob/"+ref.Digest, size, 1))
		}
	})
}
