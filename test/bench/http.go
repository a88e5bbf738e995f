package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/trivet-project/trivet/client"
)

// Files that machines fetch by HTTP, and how many fetch at once.
var httpFiles = []struct {
	what  string
	bytes int
	at    int
}{
	{"boot program", 256 << 10, 16},
	{"kernel", 8 << 20, 16},
	{"initramfs", 48 << 20, 16},
	{"image", 512 << 20, 2},
}

const httpRounds = 9

// http serves the same files from the boot server and from nginx (sendfile), to the same wrk.
func (b *bench) http() error {
	h, _, err := b.startHead(filepath.Join(b.dir, "http"))
	if err != nil {
		return err
	}
	defer h.close()
	if err := b.network(h); err != nil { // files are for machines of a network
		return err
	}
	root := filepath.Join(b.dir, "files")
	nginx, err := b.startNginx(root)
	if err != nil {
		return err
	}
	defer nginx.stop()
	for _, f := range httpFiles {
		content := make([]byte, f.bytes)
		rand.Read(content)
		ref, err := h.client.PutBlob(b.ctx, bytes.NewReader(content), client.PutOptions{})
		if err != nil {
			return err
		}
		name := strconv.Itoa(f.bytes)
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil {
			return err
		}
		row, err := b.wrk(f.at, bootURL+"/blob/"+ref.Digest, "http://"+other.address+"/"+name)
		if err != nil {
			return err
		}
		row.what = fmt.Sprintf("%s, %s, %d at once", f.what, size(f.bytes), f.at)
		b.report.add(row)
	}
	b.report.command(fmt.Sprintf("wrk -t 2 -c AT-ONCE -d 2s URL # %d times alternately; the median", httpRounds))
	return nil
}

// wrk reads a URL of each side alternately.
func (b *bench) wrk(at int, ours, peer string) (row, error) {
	read := func(url string) func() (float64, error) {
		return func() (float64, error) { return b.wrkOnce(at, url) }
	}
	r, err := alternate(httpRounds, read(ours), read(peer))
	r.unit, r.by, r.bound = "MB/s", "nginx", atLeastPeer(0.9)
	return r, err
}

var transfer = regexp.MustCompile(`Transfer/sec:\s+([\d.]+)([KMG])B`)

// wrkOnce returns the rate in MB/s.
func (b *bench) wrkOnce(at int, url string) (float64, error) {
	out, err := b.output(nil, "wrk", "-t", "2", "-c", strconv.Itoa(at), "-d", "2s", "--timeout", "30s", url)
	if err != nil {
		return 0, err
	}
	m := transfer.FindStringSubmatch(out)
	if m == nil || bytes.Contains([]byte(out), []byte("Non-2xx")) {
		return 0, fmt.Errorf("the output of wrk is %s", out)
	}
	rate, err := strconv.ParseFloat(m[1], 64)
	return rate * map[string]float64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[m[2]] / 1e6, err
}

// startNginx serves a directory, as many processes as there are cores.
func (b *bench) startNginx(root string) (*program, error) {
	config := fmt.Sprintf(`daemon off; worker_processes auto; pid %s/nginx.pid; error_log stderr warn; user root;
events { worker_connections 1024; }
http {
  sendfile on; sendfile_max_chunk 4m; tcp_nopush on; access_log off; keepalive_requests 1000000;
  default_type application/octet-stream;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s;
  scgi_temp_path %[1]s;
  server { listen %[2]s:80; root %[3]s; }
}
`, b.dir, other.address, root)
	path := filepath.Join(b.dir, "nginx.conf")
	if err := errors.Join(os.MkdirAll(root, 0o755), os.Chmod(b.dir, 0o755),
		os.WriteFile(path, []byte(config), 0o600)); err != nil {
		return nil, err
	}
	return b.startServer("tcp", 80, "nginx", "-c", path)
}

// size is a number of bytes for people.
func size(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
