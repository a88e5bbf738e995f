package bmc

import (
	"encoding/binary"
	"errors"
)

// RMCP+ packets (IPMI 2.0, §13). Section numbers in this package are of that specification, revision 1.1.

// Payload types (§13.27.3).
const (
	payloadIPMI         = 0x00
	payloadOpenRequest  = 0x10
	payloadOpenResponse = 0x11
	payloadRAKP1        = 0x12
	payloadRAKP2        = 0x13
	payloadRAKP3        = 0x14
	payloadRAKP4        = 0x15
)

const (
	flagEncrypted     = 0x80
	flagAuthenticated = 0x40
	formatRMCPPlus    = 0x06
)

// rmcpHeader is RMCP 1.0, no acknowledgement wanted, class IPMI (§13.1.3).
var rmcpHeader = []byte{0x06, 0x00, 0xff, 0x07}

// errPacket: not the expected packet. Such a packet is ignored, as any host can send it.
var errPacket = errors.New("not a valid packet of this session")

// packet is one RMCP+ packet, decrypted and authenticated.
type packet struct {
	kind     byte
	session  uint32 // of the receiver
	sequence uint32
	payload  []byte
}

// seal encodes p (§13.6). Without keys, as before a session, it is neither encrypted nor authenticated.
func (k *sessionKeys) seal(p packet) []byte {
	kind := p.kind
	payload := p.payload
	if k != nil {
		kind |= flagEncrypted | flagAuthenticated
		payload = k.encrypt(payload)
	}
	b := append([]byte{}, rmcpHeader...)
	b = append(b, formatRMCPPlus, kind)
	b = binary.LittleEndian.AppendUint32(b, p.session)
	b = binary.LittleEndian.AppendUint32(b, p.sequence)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(payload)))
	b = append(b, payload...)
	if k == nil {
		return b
	}
	pad := (4 - (len(b)-len(rmcpHeader)+2)%4) % 4 // the authenticated part is a multiple of 4 bytes
	for range pad {
		b = append(b, 0xff)
	}
	b = append(b, byte(pad), 0x07)
	return append(b, k.authCode(b[len(rmcpHeader):])...)
}

// open decodes a packet. With keys it must be encrypted and authenticated by them, without it must be neither: only
// the BMC can send a packet that opens.
func (k *sessionKeys) open(b []byte) (packet, error) {
	const header = 4 + 12
	if len(b) < header || b[0] != rmcpHeader[0] || b[3] != rmcpHeader[3] || b[4] != formatRMCPPlus {
		return packet{}, errPacket
	}
	p := packet{
		kind:     b[5] &^ (flagEncrypted | flagAuthenticated),
		session:  binary.LittleEndian.Uint32(b[6:]),
		sequence: binary.LittleEndian.Uint32(b[10:]),
	}
	flags := b[5] & (flagEncrypted | flagAuthenticated)
	size := int(binary.LittleEndian.Uint16(b[14:]))
	if size > len(b)-header {
		return packet{}, errPacket
	}
	p.payload = b[header : header+size]
	if k == nil {
		if flags != 0 || p.session != 0 {
			return packet{}, errPacket
		}
		return p, nil
	}
	codeAt := len(b) - k.suite.codeLen
	if flags != flagEncrypted|flagAuthenticated || codeAt < header+size+2 ||
		!k.checkCode(b[len(rmcpHeader):codeAt], b[codeAt:]) {
		return packet{}, errPacket
	}
	var err error
	p.payload, err = k.decrypt(p.payload)
	return p, err
}

// message is an IPMI request or response (§13.8).
type message struct {
	netFn    byte // of a request: even
	sequence byte // 6 bits
	command  byte
	data     []byte // of a response: begins with the completion code
}

const (
	addressBMC     = 0x20
	addressConsole = 0x81
)

// request encodes m as a request to the BMC.
func (m message) request() []byte {
	b := []byte{addressBMC, m.netFn << 2, 0, addressConsole, m.sequence << 2, m.command}
	b[2] = checksum(b[:2])
	b = append(b, m.data...)
	return append(b, checksum(b[3:]))
}

// parseResponse parses the BMC's response; netFn is that of the request. Its sender and receiver addresses are
// ignored: the session identifies them, and BMCs differ.
func parseResponse(b []byte) (message, error) {
	if len(b) < 8 || checksum(b[:3]) != 0 || checksum(b[3:]) != 0 || b[1]>>2&1 == 0 {
		return message{}, errPacket
	}
	return message{netFn: b[1]>>2 - 1, sequence: b[4] >> 2, command: b[5], data: b[6 : len(b)-1]}, nil
}

// checksum returns the two's complement of the sum, so that bytes and their checksum add up to 0.
func checksum(b []byte) (sum byte) {
	for _, c := range b {
		sum -= c
	}
	return sum
}
