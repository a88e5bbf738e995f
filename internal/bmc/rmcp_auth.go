package bmc

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// suite is a cipher suite (§22.15.2): algorithms for the login, the integrity and the secrecy of packets.
type suite struct {
	id               int
	login, integrity byte
	hash             func() hash.Hash
	codeLen          int // bytes of an integrity check
}

// suites are offered best first. The others leave out authentication, integrity or encryption, or use MD5 or RC4.
var suites = []suite{
	{id: 17, login: 0x03, integrity: 0x04, hash: sha256.New, codeLen: 16},
	{id: 3, login: 0x01, integrity: 0x01, hash: sha1.New, codeLen: 12},
}

const encryptionAES = 0x01 // AES-CBC-128

// mac is the suite's HMAC over the concatenation of parts.
func (s suite) mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(s.hash, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// rakp is what both sides know of a login (§13.31, §13.32): their session IDs, random numbers, and who logs in.
type rakp struct {
	suite                         suite
	key                           []byte // the user's password
	console, bmc                  uint32 // session IDs
	consoleRandom, bmcRandom, who []byte
	guid                          []byte
}

// userAndRole is the part that names who logs in, as which role.
func userAndRole(role byte, user string) []byte {
	return append([]byte{role, byte(len(user))}, user...)
}

// fromBMC is what RAKP 2 must hold: the BMC's proof that it knows the password.
func (r *rakp) fromBMC() []byte {
	return r.suite.mac(r.key, le32(r.console), le32(r.bmc), r.consoleRandom, r.bmcRandom, r.guid, r.who)
}

// fromConsole is what RAKP 3 holds: our proof.
func (r *rakp) fromConsole() []byte {
	return r.suite.mac(r.key, r.bmcRandom, le32(r.console), r.who)
}

// sessionKey is the key that all others come from. BMCs with a second key (KG) are not supported.
func (r *rakp) sessionKey() []byte {
	return r.suite.mac(r.key, r.consoleRandom, r.bmcRandom, r.who)
}

// confirmation is what RAKP 4 must hold.
func (r *rakp) confirmation() []byte {
	return r.suite.mac(r.sessionKey(), r.consoleRandom, le32(r.bmc), r.guid)[:r.suite.codeLen]
}

// keys are those of the session that the login gives (§13.32).
func (r *rakp) keys() (*sessionKeys, error) {
	sik := r.sessionKey()
	block, err := aes.NewCipher(r.suite.mac(sik, bytes.Repeat([]byte{2}, 20))[:16])
	if err != nil {
		return nil, err
	}
	return &sessionKeys{suite: r.suite, integrity: r.suite.mac(sik, bytes.Repeat([]byte{1}, 20)), block: block}, nil
}

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }

// sessionKeys protect the packets of a session.
type sessionKeys struct {
	suite     suite
	integrity []byte
	block     cipher.Block
}

func (k *sessionKeys) authCode(b []byte) []byte { return k.suite.mac(k.integrity, b)[:k.suite.codeLen] }

func (k *sessionKeys) checkCode(b, code []byte) bool { return hmac.Equal(k.authCode(b), code) }

// encrypt is AES-CBC with a random IV before, and the padding 1, 2, 3, ... and its length behind (§13.29).
func (k *sessionKeys) encrypt(plain []byte) []byte {
	b := make([]byte, aes.BlockSize, aes.BlockSize+len(plain)+aes.BlockSize)
	rand.Read(b)
	b = append(b, plain...)
	pad := byte(aes.BlockSize - 1 - len(plain)%aes.BlockSize)
	for i := range pad {
		b = append(b, i+1)
	}
	b = append(b, pad)
	text := b[aes.BlockSize:]
	cipher.NewCBCEncrypter(k.block, b[:aes.BlockSize]).CryptBlocks(text, text)
	return b
}

func (k *sessionKeys) decrypt(b []byte) ([]byte, error) {
	if len(b) < 2*aes.BlockSize || len(b)%aes.BlockSize != 0 {
		return nil, errPacket
	}
	text := make([]byte, len(b)-aes.BlockSize)
	cipher.NewCBCDecrypter(k.block, b[:aes.BlockSize]).CryptBlocks(text, b[aes.BlockSize:])
	pad := int(text[len(text)-1])
	if pad >= len(text) {
		return nil, errPacket
	}
	return text[:len(text)-1-pad], nil
}
