package tftp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Real clients: apt-get install tftp-hpa atftp curl busybox. In a command _ stands for a space within an argument.
func TestRealClients(t *testing.T) {
	want := pattern(300_001)
	server := serve(t, &Server{Open: files(map[string][]byte{"dir/f": want})}, "127.0.0.1:0")
	port := fmt.Sprint(server.addr.Port())
	for name, c := range map[string]struct {
		command string
		want    Options
	}{
		"tftp-hpa": {"tftp -m binary 127.0.0.1 PORT -c get dir/f OUT", Options{}},
		"curl": {"curl -sS tftp://127.0.0.1:PORT/dir/f -o OUT --tftp-blksize 1428",
			Options{BlockSize: 1428, WantSize: true, Size: 300_001, Timeout: 6 * time.Second}},
		"curl without options": {"curl -sS tftp://127.0.0.1:PORT/dir/f -o OUT --tftp-no-options", Options{}},
		"atftp": {"atftp -g -r dir/f -l OUT --option tsize --option blksize_8192 127.0.0.1 PORT",
			Options{BlockSize: 8192, WantSize: true, Size: 300_001}},
		"atftp with windows": {"atftp -g -r dir/f -l OUT --option blksize_1468 --option windowsize_16 127.0.0.1 PORT",
			Options{BlockSize: 1468, Window: 16}},
		"busybox": {"busybox tftp -g -r dir/f -l OUT -b 1468 127.0.0.1 PORT",
			Options{BlockSize: 1468, WantSize: true, Size: 300_001}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f")
			args := strings.Split(c.command, " ")
			for i := range args {
				args[i] = strings.NewReplacer("PORT", port, "OUT", file, "_", " ").Replace(args[i])
			}
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s (apt-get install tftp-hpa atftp curl busybox)", err, out)
			}
			got, err := os.ReadFile(file)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("got %d bytes, %v; it printed %s", len(got), err, out)
			}
			r := <-server.results
			if r.Err != nil || r.Options != c.want {
				t.Fatalf("result %+v, want options %+v", r, c.want)
			}
		})
	}
}

// The real client reports by its exit code why it was refused.
func TestRealClientIsRefused(t *testing.T) {
	server := serve(t, &Server{Open: files(nil)}, "127.0.0.1:0")
	for args, want := range map[string]int{"-o-": 68, "-T/dev/null": 69} { // not found, permission
		err := exec.Command("curl", "-s", args, fmt.Sprintf("tftp://%s/f", server.addr)).Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want {
			t.Errorf("curl %s: %v, want exit status %d", args, err, want)
		}
	}
}

// A block that does not fit the path's MTU is made smaller, not cut into fragments. The test runs itself again in a
// network namespace whose loopback takes 1500 bytes.
func TestBlockFitsMTU(t *testing.T) {
	if os.Getenv("TFTP_OWN_NETWORK") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestBlockFitsMTU$", "-test.v")
		cmd.Env = append(os.Environ(), "TFTP_OWN_NETWORK=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
			t.Fatalf("%v (needs root): %s", err, out)
		}
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "mtu", "1500", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s (apt-get install iproute2)", err, out)
	}
	for listen, want := range map[string]int{"127.0.0.1:0": 1468, "[::1]:0": 1448} {
		server := serve(t, &Server{Open: files(map[string][]byte{"f": pattern(100_000)})}, listen)
		if _, err := get(t.Context(), server.addr, "f", io.Discard, Options{BlockSize: 8192, Window: 4}); err != nil {
			t.Fatal(err)
		}
		if r := <-server.results; r.Options.BlockSize != want {
			t.Fatalf("%s: blocks of %d, want %d", listen, r.Options.BlockSize, want)
		}
	}
}
