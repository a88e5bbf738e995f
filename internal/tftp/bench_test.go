package tftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// benchFile is what firmware and kernels measure: some megabytes.
const benchFile = 16 << 20

// BenchmarkGet reads one file with the same client from this server and from dnsmasq, each a process of its own on
// loopback. dnsmasq 2.90 has no windowsize, so those lines have no counterpart.
func BenchmarkGet(b *testing.B) {
	ours, dnsmasq := startBoth(b)
	for _, block := range []int{512, 1468, 8192} {
		for _, window := range []int{1, 4, 16, 64} {
			o := Options{BlockSize: block, Window: window}
			if window == 1 {
				o.Window = 0
				b.Run(fmt.Sprintf("block=%d/window=1/server=dnsmasq", block),
					func(b *testing.B) { benchGet(b, dnsmasq, o) })
			}
			b.Run(fmt.Sprintf("block=%d/window=%d/server=trivet", block, window), func(b *testing.B) {
				benchGet(b, ours, o)
			})
		}
	}
}

// BenchmarkGetMany reads with 16 clients at once.
func BenchmarkGetMany(b *testing.B) {
	ours, dnsmasq := startBoth(b)
	servers := []struct {
		name string
		addr netip.AddrPort
	}{{"dnsmasq", dnsmasq}, {"trivet", ours}}
	for _, server := range servers {
		b.Run("block=1468/window=1/server="+server.name, func(b *testing.B) {
			b.SetParallelism(8)
			b.SetBytes(benchFile)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := get(b.Context(), server.addr, "f", io.Discard, Options{BlockSize: 1468}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

func benchGet(b *testing.B, server netip.AddrPort, o Options) {
	b.SetBytes(benchFile)
	for b.Loop() {
		if n, err := get(b.Context(), server, "f", io.Discard, o); err != nil || n != benchFile {
			b.Fatalf("%d bytes, %v", n, err)
		}
	}
}

// startBoth serves the file from both.
func startBoth(b *testing.B) (ours, dnsmasq netip.AddrPort) {
	b.Helper()
	dir := b.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), pattern(benchFile), 0o644); err != nil {
		b.Fatal(err)
	}
	return startServer(b, dir), startDnsmasq(b, dir)
}

// startServer serves dir from a process of its own, this test binary again.
func startServer(b *testing.B, dir string) netip.AddrPort {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServeForBenchmark$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), "TFTP_BENCHMARK_DIR="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe() // its end is the child's end
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	var addr string
	if _, err := fmt.Fscanln(stdout, &addr); err != nil {
		b.Fatal(err)
	}
	return netip.MustParseAddrPort(addr)
}

// TestServeForBenchmark is that process; without its directory it is a test that a directory's file is served.
func TestServeForBenchmark(t *testing.T) {
	dir := os.Getenv("TFTP_BENCHMARK_DIR")
	root := dir
	if root == "" {
		root = t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "f"), pattern(5000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := serve(t, &Server{Open: func(_ context.Context, name string, _ netip.AddrPort) (File, int64, error) {
		f, err := os.OpenInRoot(root, name)
		if err != nil {
			return nil, 0, err
		}
		info, err := f.Stat()
		if err != nil {
			return nil, 0, errors.Join(err, f.Close())
		}
		return f, info.Size(), nil
	}}, "127.0.0.1:0")
	if dir == "" {
		if n, err := get(t.Context(), server.addr, "f", io.Discard, Options{}); err != nil || n != 5000 {
			t.Fatalf("%d bytes, %v", n, err)
		}
		return
	}
	go func() {
		for range server.results { // not kept
		}
	}()
	fmt.Println(server.addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startDnsmasq serves dir on port 69, which cannot be chosen, of a loopback address of its own.
func startDnsmasq(b *testing.B, dir string) netip.AddrPort {
	b.Helper()
	addr := netip.MustParseAddrPort("127.69.0.69:69")
	cmd := exec.Command("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--enable-tftp",
		"--tftp-root="+dir, "--listen-address="+addr.Addr().String(), "--bind-interfaces", "--user=root", "--pid-file=",
		"--log-facility=-")
	if err := cmd.Start(); err != nil {
		b.Fatalf("%v (as root: apt-get install dnsmasq-base)", err)
	}
	b.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for range 100 {
		if _, err := getWithin(b.Context(), addr, "f", io.Discard, Options{BlockSize: 8192},
			50*time.Millisecond); err == nil {
			return addr
		}
	}
	b.Fatal("dnsmasq does not answer")
	return addr
}
