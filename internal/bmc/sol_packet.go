package bmc

// payloadSOL is the payload type of serial over LAN (§13.27.3).
const payloadSOL = 0x01

// solHeader is the length of a SOL packet without characters (§15.9).
const solHeader = 4

// Flags of a SOL packet to the BMC, and of one from it (table 15-2).
const (
	solNack        = 0x40 // the packet was not accepted, or not all of it
	solBreak       = 0x10 // to the BMC: generate a break
	solUnavailable = 0x20 // from the BMC: the machine does not take characters now, as when it is off
	solEnded       = 0x10 // from the BMC: it deactivated SOL
)

// solPacket is a SOL packet. One without characters and sequence only acknowledges.
type solPacket struct {
	sequence byte // 1 to 15; 0: not to be acknowledged
	ack      byte // sequence of the packet that it acknowledges; 0: none
	accepted byte // how many characters of that one were accepted
	flags    byte
	text     []byte
}

func (p solPacket) encode() []byte {
	return append([]byte{p.sequence, p.ack, p.accepted, p.flags}, p.text...)
}

// parseSOL parses a packet of the BMC's.
func parseSOL(b []byte) (solPacket, error) {
	if len(b) < solHeader {
		return solPacket{}, errPacket
	}
	return solPacket{sequence: b[0] & 0x0f, ack: b[1] & 0x0f, accepted: b[2], flags: b[3], text: b[solHeader:]}, nil
}
