package heads_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/auth"
)

// Two heads and a witness continue when any one of the three is killed. The witness votes, serves nothing, and has no
// secret on its disk.
func TestWitness(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	secret := filepath.Join(t.TempDir(), "secret.yaml")
	record := []byte("kind: Secret\nname: bmc\nspec: {data: {password: correct-horse-battery}}\n")
	if err := os.WriteFile(secret, record, 0o600); err != nil {
		t.Fatal(err)
	}
	h0.MustTrivet("apply", "-f", secret)
	h1 := h0.join("head1")
	w := h0.join("head2", "token", "--witness")
	all := []*head{h0, h1, w}
	l.cl = h0.client(h0, h1)
	if v := h0.awaitState("head2", "member", "leader"); v.Role != "witness" || len(v.API) != 0 {
		t.Errorf("the witness is %+v", v)
	}
	for _, h := range all {
		h.Kill()
		l.write()
		if h != h0 {
			h0.awaitState(h.Name, "down")
		}
		h.Up()
		l.write()
	}
	t.Run("serves nothing", func(t *testing.T) { w.servesNothing(t) })
	t.Run("holds no secrets", func(t *testing.T) { w.holdsNone(t, h0) })
	t.Run("renews its certificate", func(t *testing.T) { w.renews(t, h0, l) })
	t.Logf("resident: witness %d MiB, head %d MiB", w.residentMiB(), h1.residentMiB())
	if script := h0.MustBoot(knownMAC); strings.Contains(script, w.Address) {
		t.Errorf("machines are directed to the witness:\n%s", script)
	}
	t.Run("is removed while it is down", func(t *testing.T) {
		w.Kill()
		h0.MustTrivet("head", "remove", "head2", "--yes")
		h0.awaitState("head2", "removed")
		h0.Signal(syscall.SIGSTOP) // no head can notify it when it starts
		h1.Signal(syscall.SIGSTOP)
		w.Up()
		h0.Signal(syscall.SIGCONT)
		h1.Signal(syscall.SIGCONT)
		w.expectRefusal("it was removed from cluster", "--rejoin")
		l.write()
	})
}

func (h *head) servesNothing(t *testing.T) {
	cl := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer cl.CloseIdleConnections()
	for path, want := range map[string]int{
		"/livez": 200, "/readyz": 200, "/v1/machines": 404, "/v1/version": 404, "/metrics": 404,
		"/peer/v1/join": 404, "/peer/v1/certificate": 404, "/agent/v1/hello": 404,
	} {
		resp, err := cl.Get(h.API() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	if _, err := http.Get("http://" + h.Address + ":7481/"); err == nil {
		t.Error("the boot server answers")
	}
}

// holdsNone searches the data directory for the cluster's keys, the secret in the store and the administrator's token.
func (h *head) holdsNone(t *testing.T, admin *head) {
	h.Stop()
	defer h.Up()
	needles := map[string][]byte{"the value of a secret": []byte("correct-horse-battery")}
	for _, name := range []string{"ca-key.pem", "boot-ca.pem", "boot.keys", "seal.keys", "store.keys"} {
		text := must(os.ReadFile(filepath.Join(admin.Dir, "keys", name)))(t)
		needles[name] = bytes.TrimSpace(text)
		if raw, err := hex.DecodeString(string(bytes.TrimSpace(text))); err == nil {
			needles[name+" in binary"] = raw
		}
	}
	config := string(must(os.ReadFile(filepath.Join(admin.Dir, "admin.yaml")))(t))
	i := strings.Index(config, "trivet_")
	needles["the administrator's token"] = []byte(strings.Fields(config[i:])[0])
	err := filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for what, needle := range needles {
			if bytes.Contains(text, needle) {
				t.Errorf("%s holds %s", path, what)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// renews sets the witness a certificate that is about to be renewed, or that expired long ago, and wants it to get a
// new one, with a new key, without a restart.
func (h *head) renews(t *testing.T, admin *head, l *ledger) {
	keys := must(auth.Load(filepath.Join(admin.Dir, "keys")))(t)
	file := filepath.Join(h.Dir, "peer.pem")
	for what, signed := range map[string]time.Time{
		"to be renewed in 5 s": time.Now().Add(5*time.Second - 60*24*time.Hour),
		"expired":              time.Now().Add(-200 * 24 * time.Hour),
	} {
		h.Stop()
		key := must(auth.PeerKey())(t)
		csr := must(auth.PeerRequest(key))(t)
		cert := must(keys.CA.SignPeer(auth.Peer{Name: "head2", Role: auth.PeerWitness, Host: h.Address}, csr,
			signed))(t)
		if err := os.WriteFile(file, append(cert, key...), 0o600); err != nil {
			t.Fatal(err)
		}
		h.Up()
		h.Await("has a new certificate, after one that was "+what, func() error {
			text := must(os.ReadFile(file))(t)
			pair := must(tls.X509KeyPair(text, text))(t)
			leaf := must(x509.ParseCertificate(pair.Certificate[0]))(t)
			if left := time.Until(leaf.NotAfter); left < 89*24*time.Hour || bytes.Contains(text, key) {
				return fmt.Errorf("it ends in %s", left)
			}
			return nil
		})
		admin.awaitMember("head2")
		l.write()
	}
}

// residentMiB returns the process's memory.
func (h *head) residentMiB() int64 {
	h.Helper()
	bytes, err := h.Resident()
	if err != nil {
		h.Fatal(err)
	}
	return bytes >> 20
}
