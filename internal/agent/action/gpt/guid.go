package gpt

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// GUID is an identifier as stored on disk: the first three fields are little-endian (UEFI 2.10, appendix A).
type GUID [16]byte

// EFISystem is the type of the EFI system partition.
var EFISystem = mustGUID("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")

// ParseGUID reads "c12a7328-f81f-11d2-ba4b-00a0c93ec93b".
func ParseGUID(s string) (GUID, error) {
	var g GUID
	plain := strings.ReplaceAll(s, "-", "")
	b, err := hex.DecodeString(plain)
	if err != nil || len(b) != 16 || len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return g, fmt.Errorf("%q is not a GUID", s)
	}
	binary.LittleEndian.PutUint32(g[0:], binary.BigEndian.Uint32(b[0:]))
	binary.LittleEndian.PutUint16(g[4:], binary.BigEndian.Uint16(b[4:]))
	binary.LittleEndian.PutUint16(g[6:], binary.BigEndian.Uint16(b[6:]))
	copy(g[8:], b[8:])
	return g, nil
}

func mustGUID(s string) GUID {
	g, err := ParseGUID(s)
	if err != nil {
		panic(err)
	}
	return g
}

// DeriveGUID returns the GUID of some names, always the same, so that a repeated action changes nothing.
func DeriveGUID(names ...string) GUID {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	g := GUID(sum[:16])
	g[7] = g[7]&0x0f | 0x40 // version 4, in the third field's high byte
	g[8] = g[8]&0x3f | 0x80 // variant of RFC 9562
	return g
}

// BigEndian returns the bytes in the order of the text, as everything but GPT stores them.
func (g GUID) BigEndian() []byte {
	b := slices.Clone(g[:])
	slices.Reverse(b[0:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return b
}

// String writes it as Linux does.
func (g GUID) String() string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(g[0:]), binary.LittleEndian.Uint16(g[4:]),
		binary.LittleEndian.Uint16(g[6:]), g[8:10], g[10:])
}
