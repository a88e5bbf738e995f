package head_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A port that another program uses is named, with the flag that sets it.
func TestPortsTaken(t *testing.T) {
	for _, port := range []struct{ flag, network, number string }{
		{"--api", "tcp", "7480"}, {"--boot", "tcp", "7481"}, {"--tftp", "udp", "7069"},
		{"--dhcp-listen", "udp", "7067"},
	} {
		t.Run(port.flag, func(t *testing.T) {
			host := testhead.NewAddress()
			at := net.JoinHostPort(host, port.number)
			switch port.network {
			case "tcp":
				l, err := net.Listen("tcp", at)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
			case "udp":
				c, err := net.ListenPacket("udp4", at)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
			}
			launch(t, t.TempDir(), host).ExpectFailure(at, "address already in use", "hint:",
				"choose another with "+port.flag+"\n")
		})
	}
}

func TestInvalidAddresses(t *testing.T) {
	for _, flag := range []string{"--api", "--boot", "--tftp", "--dhcp-listen"} {
		for _, address := range []string{"nonsense", "127.0.0.1:99999", "192.0.2.1:7480"} {
			t.Run(flag+"="+address, func(t *testing.T) {
				t.Parallel()
				launch(t, t.TempDir(), testhead.NewAddress(), flag, address).ExpectFailure(flag, address)
			})
		}
	}
	t.Run("interface", func(t *testing.T) {
		launch(t, t.TempDir(), testhead.NewAddress(), "--dhcp", "nope0", "--dhcp-listen", "").
			ExpectFailure("nope0", "--dhcp")
	})
}

// A second head on the same directory names the process that uses it, and does not disturb the first.
func TestSecondStart(t *testing.T) {
	h := newHead(t)
	second := launch(t, h.Dir, testhead.NewAddress())
	second.ExpectFailure(fmt.Sprintf("process %d is using it", h.PID()), h.Dir, "--data-dir")
	h.mustServe()
}

// A data directory that cannot be used is reported before anything is written there.
func TestDataDirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("a file", func(t *testing.T) {
		launch(t, file, testhead.NewAddress()).
			ExpectFailure("open data directory "+file, "not a directory", "--data-dir")
	})
	t.Run("below a file", func(t *testing.T) {
		launch(t, file+"/data", testhead.NewAddress()).ExpectFailure("not a directory", "--data-dir")
	})
	t.Run("read-only", func(t *testing.T) {
		dir := mount(t, "size=1m,ro")
		launch(t, dir, testhead.NewAddress()).
			ExpectFailure("open data directory "+dir, "read-only file system", "--data-dir")
	})
	t.Run("nothing", func(t *testing.T) {
		launch(t, "", testhead.NewAddress()).ExpectFailure("data-dir is missing")
	})
}

// mount mounts a small file system.
func mount(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("mounting a file system needs root: sudo make test")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, strings.TrimSuffix(options, ",ro")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	if strings.HasSuffix(options, ",ro") {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A directory of another head, of a newer version, or with damaged or missing files is reported as what it is, and left
// unchanged: with the file restored, the head starts.
func TestForeignAndDamagedData(t *testing.T) {
	h := newHead(t)
	h.Apply("kind: Secret\nname: bmc\nspec: {data: {password: hunter2}}\n")
	h.Signal(syscall.SIGTERM)
	if h.AwaitExit() != 0 {
		t.Fatal("no orderly end")
	}
	newer := []byte(`{"format":9,"name":"head0","version":"v9.0.0"}`)
	for _, c := range []struct {
		what, file string
		content    []byte // nil: removed; "damaged": its first bytes are
		words      []string
	}{
		{"of a newer version", "head.json", newer,
			[]string{"version v9.0.0 wrote it in format 9", "run that version of trivet"}},
		{"damaged head.json", "head.json", []byte("{"), []string{"head.json is damaged", "backup"}},
		{"damaged log", "store/etcd/member/wal/0000000000000000-0000000000000000.wal", []byte("damaged"),
			[]string{"damaged", "backup"}},
		{"damaged pages", "store/etcd/member/snap/db", []byte("damaged"), []string{"damaged", "backup"}},
		{"no CA", "keys/ca.pem", nil, []string{"keys/ca.pem", "backup"}},
		{"damaged CA", "keys/ca.pem", []byte("x"), []string{"keys", "no certificate in PEM"}},
		{"damaged key", "keys/seal.keys", []byte("x"), []string{"seal.keys"}},
		{"damaged credential", "admin.yaml", []byte("{{"), []string{"admin.yaml", "remove it"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := filepath.Join(h.Dir, c.file)
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, path, whole, c.content)
			launch(t, h.Dir, testhead.NewAddress()).ExpectFailure(c.words...)
			if err := os.WriteFile(path, whole, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("of another head", func(t *testing.T) {
		launch(t, h.Dir, testhead.NewAddress(), "--name", "head7").
			ExpectFailure("it is of head head0, not of head7", "--name")
	})
	t.Run("secrets that others can read", func(t *testing.T) {
		path := filepath.Join(h.Dir, "keys/seal.keys")
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		launch(t, h.Dir, testhead.NewAddress()).ExpectFailure("seal.keys is readable by other users", "chmod 600")
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	for file, words := range map[string][]string{
		"keys/seal.keys":  {"is sealed with key", "which is not in keys/seal.keys", "backup"},
		"keys/store.keys": {"none authenticates with this head's key", "store.keys", "backup"},
	} {
		t.Run("another key in "+file, func(t *testing.T) {
			path := filepath.Join(h.Dir, file)
			own, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, keyring.Of(keyring.New()).Text(), 0o600); err != nil {
				t.Fatal(err)
			}
			launch(t, h.Dir, testhead.NewAddress()).ExpectFailure(words...)
			if err := os.WriteFile(path, own, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("put back", func(t *testing.T) { startHead(t, h.Dir).mustServe() })
}

func spoil(t *testing.T, path string, whole, content []byte) {
	t.Helper()
	switch string(content) {
	case "":
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		return
	case "damaged":
		content = bytes.Clone(whole)
		for i := range content[:16<<10] {
			content[i] ^= 0x5a
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A head that reports ready has completed its first start: its administrator's file exists.
func TestReadyIsTheEndOfAStart(t *testing.T) {
	h := launch(t, filepath.Join(t.TempDir(), "data"), testhead.NewAddress())
	probe := &http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its CA is being made
	defer probe.CloseIdleConnections()
	for late := time.Now().Add(timeout); time.Now().Before(late); time.Sleep(time.Millisecond) {
		resp, err := probe.Get("https://" + h.Address + ":7480/readyz")
		if err != nil {
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			continue
		}
		if _, err := os.Stat(filepath.Join(h.Dir, "admin.yaml")); err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("the head does not get ready")
}
