package heads_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/keyring"
)

// The key of the store is rotated under load, with a head that is down at first and one that is killed while values are
// encrypted again. Afterwards no head has the old key, no value is under it, every record is readable, and a witness
// has never had a key. A head that joins gets the new key only.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1, h2 := h0.join("head1"), h0.join("head2")
	w := h0.join("head3", "token", "--witness")
	full := []*head{h0, h1, h2}
	l.cl = h0.client(full...)
	l.fill(600)
	old := h0.storeKeys(t)
	if len(old.IDs()) != 1 || h2.storeKeys(t).IDs()[0] != old.IDs()[0] {
		t.Fatalf("the keys at first: %v, %v", old.IDs(), h2.storeKeys(t).IDs())
	}

	h2.Kill()
	h0.MustTrivet("key", "rotate", "store", "--no-wait")
	l.awaitKey(func(k *trivet.Key) bool {
		return k.Status.Phase == trivet.KeyDistributing && strings.Contains(k.Status.Reason, "waits for head2")
	})
	h2.Up()
	l.awaitKey(func(k *trivet.Key) bool { return k.Status.Phase == trivet.KeyResealing || !k.Rotating() })
	h1.Kill()
	l.write()
	h1.Up()
	h0.MustTrivet("key", "rotate", "store", "-o", "json") // the one in progress, or a second one
	key := l.awaitKey(func(k *trivet.Key) bool { return !k.Rotating() })
	if key.Status.Phase != "" || key.Status.Active == old.IDs()[0] || key.Status.Resealed < 600 {
		t.Errorf("the record is %+v", key.Status)
	}
	l.write()
	for _, h := range full {
		h.awaitRefusedNone(full...)
		l.read(h0.client(h))
		l.filled(h0.client(h), 600)
	}
	joined := h0.join("head4")
	joined.awaitRefusedNone(joined)
	l.read(h0.client(joined))
	for _, h := range append(full, joined) {
		h.Stop()
		if ids := h.storeKeys(t).IDs(); len(ids) != 1 || ids[0] != key.Status.Active {
			t.Errorf("%s has the keys %v, want %s", h.Name, ids, key.Status.Active)
		}
		h.storedUnder(t, key.Status.Active)
	}
	w.Stop()
	w.holdsNoKey(t, old, h0.storeKeys(t))
}

// fill creates records.
func (l *ledger) fill(n int) {
	l.Helper()
	for i := range n {
		m := &trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprint("fill", i)}, Spec: trivet.MachineSpec{
			NICs: []trivet.NIC{{MAC: fmt.Sprintf("52:54:01:00:%02x:%02x", i>>8, i&0xff)}}}}
		if _, err := client.Of[trivet.Machine](l.cl).Create(l.Context(), m); err != nil {
			l.Fatal(err)
		}
	}
}

// filled expects the records of fill.
func (l *ledger) filled(cl *client.Client, n int) {
	l.Helper()
	for i := range n {
		if _, err := client.Of[trivet.Machine](cl).Get(l.Context(), fmt.Sprint("fill", i)); err != nil {
			l.Fatal(err)
		}
	}
}

// awaitKey writes until the record of the key is as wanted.
func (l *ledger) awaitKey(ok func(*trivet.Key) bool) *trivet.Key {
	l.Helper()
	for {
		key, err := client.Of[trivet.Key](l.cl).Get(l.Context(), trivet.StoreKey)
		if err != nil {
			l.Fatalf("waiting for the rotation: %v", err)
		}
		if ok(key) {
			return key
		}
		l.write()
	}
}

// storeKeys returns the keys of the store in the head's directory.
func (h *head) storeKeys(t *testing.T) keyring.Ring { return h.ring(t, trivet.StoreKey) }

// awaitRefusedNone waits until this head lists others without a problem.
func (h *head) awaitRefusedNone(others ...*head) {
	h.Helper()
	h.Await("no values are refused", func() error {
		v, err := h.view()
		for _, shown := range v.Heads {
			for _, o := range others {
				if shown.Name == o.Name && shown.Problem != "" {
					err = errors.Join(err, fmt.Errorf("%s: %s", o.Name, shown.Problem))
				}
			}
		}
		return err
	})
}

// storedUnder expects every value of a head that is stopped to be encrypted with one key.
func (h *head) storedUnder(t *testing.T, key string) {
	t.Helper()
	file := ""
	_ = filepath.WalkDir(filepath.Join(h.Dir, "store"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "db" {
			file = path
		}
		return err
	})
	db := must(bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true}))(t)
	defer db.Close()
	latest := map[string]string{} // in order of revisions, the last one of each key stays
	err := db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(_, value []byte) error {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(value, &kv); err != nil {
				return err
			}
			latest[string(kv.Key)] = string(kv.Value) // empty: deleted
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	values := 0
	for name, value := range latest {
		if !strings.HasPrefix(name, "/trivet") || value == "" {
			continue
		}
		values++
		if id, ok := keyring.IDOf([]byte(value)); !ok || id.String() != key {
			t.Errorf("%s: %s is under key %s, want %s", h.Name, name, id, key)
		}
	}
	if values < 1000 {
		t.Errorf("%s has %d values only", h.Name, values)
	}
}

// holdsNoKey searches the data directory for keys.
func (h *head) holdsNoKey(t *testing.T, rings ...keyring.Ring) {
	t.Helper()
	var needles [][]byte
	for _, r := range rings {
		for line := range bytes.Lines(r.Text()) {
			digits := bytes.Fields(line)[1]
			needles = append(needles, digits, must(hex.DecodeString(string(digits)))(t))
		}
	}
	err := filepath.WalkDir(h.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for _, needle := range needles {
			if bytes.Contains(content, needle) {
				t.Errorf("%s holds a key", path)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
