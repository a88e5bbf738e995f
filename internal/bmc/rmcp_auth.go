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

// suite is a cipher suite (§22.15.2): algorithms for the login, and for integrity and encryption of packets.
type suite struct {
	id               int
	login, integrity byte
	hash             func() hash.Hash
	codeLen          int // bytes of an integrity check
}

// suites are offered best first. All others lack authentication, integrity or encryption, or use MD5 or RC4.
var suites = []suite{
	{id: 17, login: 0x03, integrity: 0x04, hash: sha256.New, codeLen: 16},
	{id: 3, login: 0x01, integrity: 0x01, hash: sha1.New, codeLen: 12},
}

const encryptionAES = 0x01 // AES-CBC-128

// mac returns the suite's HMAC over the concatenation of parts.
func (s suite) mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(s.hash, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// rakp is the shared data of a login (§13.31, §13.32): session IDs, random numbers, user and role.
type rakp struct {
	suite                         suite
	key                           []byte // the user's password
	console, bmc                  uint32 // session IDs
	consoleRandom, bmcRandom, who []byte
	guid                          []byte
}

// userAndRole returns the bytes of role and user name.
func userAndRole(role byte, user string) []byte {
	return append([]byte{role, byte(len(user))}, user...)
}

// fromBMC returns the authentication code of RAKP 2: it proves that the BMC has the password.
func (r *rakp) fromBMC() []byte {
	return r.suite.mac(r.key, le32(r.console), le32(r.bmc), r.consoleRandom, r.bmcRandom, r.guid, r.who)
}

// fromConsole returns the authentication code of RAKP 3: it proves that the client has the password.
func (r *rakp) fromConsole() []byte {
	return r.suite.mac(r.key, r.bmcRandom, le32(r.console), r.who)
}

// sessionKey returns the key that all others are derived from. BMCs with a second key (KG) are not supported.
func (r *rakp) sessionKey() []byte {
	return r.suite.mac(r.key, r.consoleRandom, r.bmcRandom, r.who)
}

// confirmation returns the integrity check of RAKP 4.
func (r *rakp) confirmation() []byte {
	return r.suite.mac(r.sessionKey(), r.consoleRandom, le32(r.bmc), r.guid)[:r.suite.codeLen]
}

// keys returns the keys of the session (§13.32).
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

// encrypt encrypts by AES-CBC, prefixed with a random IV; the padding is 1, 2, 3, ... and its length (§13.29).
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
