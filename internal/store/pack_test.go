package store

import (
	"bytes"
	"crypto/rand"
	"strings"
	"testing"
)

// A document is unpacked as it was packed, and is never larger than before by more than a byte.
func TestPack(t *testing.T) {
	random := make([]byte, 3000)
	rand.Read(random)
	for name, doc := range map[string][]byte{
		"empty": {}, "a letter": []byte("a"), "repeated": []byte(strings.Repeat(`{"name":"wipe"},`, 500)), "random": random,
	} {
		prefix := []byte("id")
		packed := appendPacked(append(make([]byte, 0, len(prefix)+maxPacked(doc)), prefix...), doc)
		got, err := unpack(packed[len(prefix):])
		if err != nil || !bytes.Equal(got, doc) || !bytes.HasPrefix(packed, prefix) ||
			len(packed) > len(prefix)+len(doc)+1 {
			t.Errorf("%s: %d bytes are packed as %d and unpacked as %d, %v", name, len(doc), len(packed), len(got), err)
		}
	}
	for name, bad := range map[string][]byte{"nothing": {}, "another form": {9, 1}, "no S2": {packedS2, 0xff},
		"too much": {packedS2, 0xff, 0xff, 0xff, 0xff, 0x0f}} {
		if _, err := unpack(bad); err == nil {
			t.Errorf("%s is unpacked", name)
		}
	}
}
