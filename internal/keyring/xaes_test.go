package keyring

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"testing"

	"golang.org/x/crypto/chacha20poly1305"
)

// The vectors of the specification: one for each value of the bit that CMAC shifts out.
func TestVectorsOfTheSpecification(t *testing.T) {
	for _, c := range []struct {
		fill       byte
		data, want string
	}{
		{1, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		{3, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		var key [keySize]byte
		copy(key[:], bytes.Repeat([]byte{c.fill}, keySize))
		x, nonce := newXAES(&key), []byte("ABCDEFGHIJKLMNOPQRSTUVWX")
		box := x.seal(nil, nonce, []byte("XAES-256-GCM"), []byte(c.data))
		if got := hex.EncodeToString(box); got != c.want {
			t.Errorf("%d: %s, want %s", c.fill, got, c.want)
		}
		if plain, err := x.open(nil, nonce, box, []byte(c.data)); err != nil || string(plain) != "XAES-256-GCM" {
			t.Errorf("%d: opened %q, %v", c.fill, plain, err)
		}
	}
}

// The candidates for stored values: see docs/decisions/0008-stored-values.md.
func BenchmarkOpen(b *testing.B) {
	var key [keySize]byte
	rand.Read(key[:])
	c := NewCipher(Of(New()))
	x, gcm := newXAES(&key), must(cipher.NewGCM(must(aes.NewCipher(key[:]))))
	xchacha := must(chacha20poly1305.NewX(key[:]))
	nonce, data := make([]byte, nonceSize), make([]byte, 40)
	for _, size := range []int{200, 1000, 4000, 20_000} {
		plain, dst := make([]byte, size), make([]byte, 0, size+tagSize)
		for name, open := range map[string]func() error{
			"aes-256-gcm": opener(gcm, nonce[:half], plain, data, dst),
			"xchacha20":   opener(xchacha, nonce, plain, data, dst),
			"xaes-256-gcm": func() func() error {
				box := x.seal(nil, nonce, plain, data)
				return func() error { _, err := x.open(dst, nonce, box, data); return err }
			}(),
			"cipher": func() func() error {
				box := c.Seal(plain, data)
				return func() error { _, _, err := c.Open(box, data); return err }
			}(),
			"cipher-seal": func() error { c.Seal(plain, data); return nil },
		} {
			b.Run(fmt.Sprintf("%s/bytes=%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := open(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func opener(a cipher.AEAD, nonce, plain, data, dst []byte) func() error {
	box := a.Seal(nil, nonce, plain, data)
	return func() error { _, err := a.Open(dst, nonce, box, data); return err }
}
