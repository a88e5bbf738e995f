package heads_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// The boot CA is rotated with a head that is down at first, and one that is killed in the grace: none starts again for
// it. Afterwards every head's boot server has a certificate of the new one, which firmware accepts that trusts the old
// one, and no head has the key of the old one: neither one that joins, nor a witness. A head that was removed before
// has not got the new one. A head that was down drops former ones when it returns.
func TestBootCARotation(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1, h2 := h0.join("head1"), h0.join("head2")
	w := h0.join("head3", "token", "--witness")
	gone := h0.join("head4")
	gone.Kill()
	h0.MustTrivet("head", "remove", "head4", "--yes")
	full := []*head{h0, h1, h2}
	l.cl = h0.client(full...)
	old := []byte(h0.MustTrivet("ca", "export"))
	oldKey := h0.bootKeys(t)[0]
	started := must(client.Of[trivet.Head](l.cl).Get(t.Context(), "head0"))(t).Status.Started

	h2.Kill()
	h0.MustTrivet("rotate", "boot-ca", "--grace", "5s", "--no-wait")
	h0.awaitBootCA(l.cl, "it waits for head2", func(k *trivet.Key) bool {
		return k.Status.Phase == trivet.KeyDistributing && strings.Contains(k.Status.Reason, "waits for head2")
	})
	h0.expectBootCA(old)
	h2.Up()
	h0.awaitBootCA(l.cl, "all have the new one", func(k *trivet.Key) bool {
		return k.Status.Phase != trivet.KeyDistributing
	})
	h1.Kill()
	h1.Up()
	h0.awaitBootCA(l.cl, "the rotation is complete", func(k *trivet.Key) bool { return !k.Rotating() })
	now := []byte(h0.MustTrivet("ca", "export"))
	if bytes.Equal(old, now) {
		t.Fatal("the boot CA is the one of before")
	}
	for _, h := range full {
		h.expectBootCA(old, now)
	}
	if s := must(client.Of[trivet.Head](l.cl).Get(t.Context(), "head0"))(t).Status.Started; !s.Equal(started) {
		t.Errorf("head0 started again at %s", s)
	}
	joined := h0.join("head5")
	joined.expectBootCA(old, now)
	newKey := h0.bootKeys(t)[0]
	for _, h := range append(full, joined) {
		if keys := h.bootKeys(t); len(keys) != 1 || keys[0] != newKey || newKey == oldKey {
			t.Errorf("%s has %d keys of boot CAs", h.Name, len(keys))
		}
	}
	if keys := gone.bootKeys(t); len(keys) != 1 || keys[0] != oldKey {
		t.Errorf("the head that was removed has %d keys", len(keys))
	}
	if _, err := os.Stat(filepath.Join(w.Dir, "keys", "boot-ca.pem")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the witness has boot CAs: %v", err)
	}

	h2.Kill()
	h0.MustTrivet("rotate", "boot-ca", "--drop-former", "--yes")
	h0.Await("the former boot CA is dropped", func() error { return h0.acceptedNot(old) })
	h0.expectBootCA(now)
	h2.Up()
	h2.Await("the former boot CA is dropped", func() error { return h2.acceptedNot(old) })
	h2.expectBootCA(now)
}

// bootKeys returns the keys of the boot CAs in the head's directory.
func (h *head) bootKeys(t *testing.T) (keys []string) {
	t.Helper()
	text := string(must(os.ReadFile(filepath.Join(h.Dir, "keys", "boot-ca.pem")))(t))
	for _, part := range strings.SplitAfter(text, "-----END PRIVATE KEY-----") {
		if _, key, ok := strings.Cut(part, "-----BEGIN PRIVATE KEY-----"); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// awaitBootCA waits until the record of the boot CA is as wanted.
func (h *head) awaitBootCA(cl *client.Client, what string, ok func(*trivet.Key) bool) {
	h.Helper()
	h.Await(what, func() error {
		k, err := client.Of[trivet.Key](cl).Get(h.Context(), trivet.BootCAKey)
		if err == nil && !ok(k) {
			err = fmt.Errorf("the record is %+v", k.Status)
		}
		return err
	})
}

// accepted runs a handshake with the boot server, as firmware that trusts a CA.
func (h *head) accepted(ca []byte) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	conn, err := tls.Dial("tcp", h.Address+":7481", &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS12,
		CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_GCM_SHA256}})
	if err == nil {
		err = conn.Close()
	}
	return err
}

// acceptedNot returns an error where firmware that trusts a CA accepts the boot server, or does not reach it.
func (h *head) acceptedNot(ca []byte) error {
	var unknown x509.UnknownAuthorityError
	if err := h.accepted(ca); !errors.As(err, &unknown) {
		return fmt.Errorf("a handshake with the former boot CA: %w", err)
	}
	return nil
}

// expectBootCA waits until firmware that trusts one of these boot CAs accepts the boot server.
func (h *head) expectBootCA(cas ...[]byte) {
	h.Helper()
	for i, ca := range cas {
		h.Await(fmt.Sprint("boot CA ", i, " is accepted"), func() error { return h.accepted(ca) })
	}
}
