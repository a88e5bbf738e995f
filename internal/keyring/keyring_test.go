package keyring

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func TestOpensOnlyWhatWasSealed(t *testing.T) {
	c, data := NewCipher(Of(New())), []byte("/trivet/token/t1")
	box := c.Seal([]byte("text"), data)
	if len(box) != len("text")+Overhead {
		t.Errorf("the overhead is %d bytes, not %d", len(box)-len("text"), Overhead)
	}
	if plain, id, err := c.Open(box, data); string(plain) != "text" || id != c.First() || err != nil {
		t.Fatalf("opened %q, key %s, %v", plain, id, err)
	}
	if plain, _, err := c.Open(box, []byte("/trivet/token/t2")); plain != nil || !errors.Is(err, ErrForged) {
		t.Errorf("opened for other data: %q, %v", plain, err)
	}
	for i := range box {
		changed := bytes.Clone(box)
		changed[i] ^= 1
		if plain, _, err := c.Open(changed, data); plain != nil || err == nil {
			t.Errorf("opened with a change of byte %d: %q", i, plain)
		}
	}
	for n := range len(box) {
		if _, _, err := c.Open(box[:n], data); !errors.Is(err, ErrForged) {
			t.Errorf("opened the first %d bytes: %v", n, err)
		}
	}
}

// What an old key has sealed is opened while the ring has that key.
func TestKeysAreReplaced(t *testing.T) {
	old, next := New(), New()
	c := NewCipher(Of(old))
	before := c.Seal([]byte("text"), nil)
	c.Use(Of(next, old))
	if plain, id, err := c.Open(before, nil); string(plain) != "text" || id != old.ID() || err != nil {
		t.Errorf("opened %q, key %s, %v", plain, id, err)
	}
	after := c.Seal([]byte("text"), nil)
	if id, ok := IDOf(after); !ok || id != next.ID() {
		t.Errorf("sealed with key %s, want %s", id, next.ID())
	}
	c.Use(Of(next))
	if _, _, err := c.Open(before, nil); !errors.Is(err, ErrKey) {
		t.Errorf("opened with a key that was retired: %v", err)
	}
}

// No nonce is used twice, and the keys that were derived are bounded, also with texts of many processes.
func TestNonces(t *testing.T) {
	ring := Of(New())
	reader, seen := NewCipher(ring), map[[nonceSize]byte]bool{}
	for range maxDerived + 10 {
		writer := NewCipher(ring)
		for range 2 {
			box := writer.Seal(nil, nil)
			nonce := [nonceSize]byte(box[1+idSize:])
			if seen[nonce] {
				t.Fatal("a nonce was used twice")
			}
			seen[nonce] = true
			if _, _, err := reader.Open(box, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := 0
	reader.keys.Load().byID[reader.First()].cache.Range(func(any, any) bool { kept++; return true })
	if kept > maxDerived {
		t.Errorf("%d derived keys are kept, at most %d", kept, maxDerived)
	}
}

// Texts that do not authenticate do not displace the derived keys of those that do.
func TestForgedNoncesAreNotKept(t *testing.T) {
	c := NewCipher(Of(New()))
	box := c.Seal(nil, nil)
	for i := range 100 {
		box[1+idSize] = byte(i)
		_, _, _ = c.Open(box, nil)
	}
	if n := c.keys.Load().byID[c.First()].held.Load(); n != 1 {
		t.Errorf("%d derived keys are kept, want 1", n)
	}
}

func TestText(t *testing.T) {
	a, b := New(), New()
	ring := Of(a, b)
	again, err := Parse(ring.Text())
	if err != nil || !slices.Equal(again.IDs(), []string{a.ID().String(), b.ID().String()}) {
		t.Fatalf("%v, %v", again.IDs(), err)
	}
	line := string(Of(a).Text())
	for name, text := range map[string]string{
		"empty":      "",
		"no ID":      line[2*idSize+1:],
		"other ID":   string(Of(b).Text()[:2*idSize]) + line[2*idSize:],
		"a bit less": line[:len(line)-3],
		"one more":   strings.TrimSpace(line) + "00\n",
		"twice":      line + line,
		"no hex":     line[:20] + "x" + line[21:],
		"changed":    line[:20] + string('0'+(line[20]-'0'+1)%10) + line[21:],
	} {
		if _, err := Parse([]byte(text)); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
