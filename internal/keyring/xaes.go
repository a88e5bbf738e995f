package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
)

// xaes is XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM under a key that is derived for each message from the first
// half of a nonce of 192 bits, so that random nonces are safe for any number of messages.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // the subkey of CMAC
}

const (
	nonceSize = 24
	tagSize   = 16
	half      = nonceSize / 2
)

// newXAES returns the cipher of a key of 32 bytes.
func newXAES(key *[keySize]byte) *xaes {
	x := &xaes{block: must(aes.NewCipher(key[:]))}
	x.block.Encrypt(x.k1[:], x.k1[:])
	var msb byte
	for i := len(x.k1) - 1; i >= 0; i-- {
		msb, x.k1[i] = x.k1[i]>>7, x.k1[i]<<1|msb
	}
	x.k1[len(x.k1)-1] ^= msb * 0b10000111
	return x
}

// derive returns AES-256-GCM under the key of a nonce's first half.
func (x *xaes) derive(nonce []byte) cipher.AEAD {
	var key [2 * aes.BlockSize]byte
	for i := range 2 {
		m := key[i*aes.BlockSize:][:aes.BlockSize]
		m[1], m[2] = byte(i+1), 'X'
		copy(m[aes.BlockSize-half:], nonce[:half])
		for j := range m {
			m[j] ^= x.k1[j]
		}
		x.block.Encrypt(m, m)
	}
	return must(cipher.NewGCM(must(aes.NewCipher(key[:]))))
}

// seal appends the encrypted text to dst.
func (x *xaes) seal(dst, nonce, plain, data []byte) []byte {
	return x.derive(nonce).Seal(dst, nonce[half:], plain, data)
}

// open appends the decrypted text to dst.
func (x *xaes) open(dst, nonce, box, data []byte) ([]byte, error) {
	if len(box) < tagSize {
		return nil, errors.New("too short")
	}
	return x.derive(nonce).Open(dst, nonce[half:], box, data)
}

// must returns the result of a constructor that fails only for keys of a wrong size.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
