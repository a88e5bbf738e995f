package faultfs_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/trivet-project/trivet/test/faultfs"
)

// boltEnv names a database that this program, run again, fills: see TestMain.
const boltEnv = "FAULTFS_BOLT"

func TestMain(m *testing.M) {
	if path := os.Getenv(boltEnv); path != "" {
		if err := fill(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var bucket = []byte("b")

// fill checks a database and then adds values without end, and prints each that is durable.
func fill(path string) error {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	next, err := check(db)
	fmt.Println(next)
	for ; err == nil; next++ {
		err = db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			return b.Put(binary.BigEndian.AppendUint64(nil, next), value(next))
		})
		if err == nil {
			fmt.Println(next + 1)
		}
	}
	return err
}

// value is what belongs to a key: some hundred bytes up to several pages, so that the file grows and is mapped again.
func value(key uint64) []byte {
	b := make([]byte, 100+key*997%20_000)
	_, _ = rand.NewChaCha8([32]byte(binary.BigEndian.AppendUint64(make([]byte, 24), key))).Read(b)
	return b
}

// check reads all through the map, and returns the number of values.
func check(db *bolt.DB) (n uint64, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		b := tx.Bucket(bucket)
		if b == nil {
			return nil
		}
		return b.ForEach(func(k, v []byte) error {
			if binary.BigEndian.Uint64(k) != n || string(v) != string(value(n)) {
				return fmt.Errorf("value %d is wrong", n)
			}
			n++
			return nil
		})
	})
	return n, err
}

// etcd's backend, whose file is mapped and written by pwrite at once, is killed and loses power again and again: it
// has all that it had acknowledged, and is consistent.
func TestBolt(t *testing.T) {
	f := faultfs.New(t)
	rng := rand.New(rand.NewPCG(2, 2))
	var acked uint64
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), boltEnv+"="+filepath.Join(f.Dir(), "db"))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for first := true; lines.Scan(); first = false {
			n, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil || n < acked {
				t.Errorf("round %d: %q after %d values were acknowledged", round, lines.Text(), acked)
			}
			if acked = max(acked, n); !first && rng.IntN(60) == 0 {
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if t.Failed() {
			return
		}
		if round%2 == 0 {
			err = f.Cut(nil)
		} else {
			err = f.Cut(rng)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if acked < 50 {
		t.Errorf("only %d values", acked)
	}
}
