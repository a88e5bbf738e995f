package bmc

import "bytes"

// Bounds of one direction of a link.
const (
	// solMaxText bounds the characters of a packet: their number must fit into a byte. BMCs may accept fewer.
	solMaxText = 255
	// solAttempts is how often a packet is sent that is not acknowledged, or not accepted.
	solAttempts = 8
)

// solLink is the state of a SOL session in both directions (§15.11): one packet at a time is on its way to the BMC, and
// is sent again until it is acknowledged; what the BMC sends again is recognised by its sequence. It has no clock and
// does no I/O.
type solLink struct {
	max int // characters that the BMC accepts in a packet

	pending  []byte // characters that the BMC has not accepted
	flags    byte   // to be sent with them
	sent     bool   // the packet of this sequence is on its way
	sequence byte   // of the last packet sent
	attempts int    // since the BMC accepted something

	received byte // sequence of the last packet of the BMC; 0: none
	taken    int  // how many of its characters were taken
}

// outcome is what became of the characters to be sent.
type outcome int

const (
	pending  outcome = iota
	accepted         // all of them, or there are none
	refused          // the machine does not take them
	silent           // the BMC acknowledges nothing
)

// start begins to send characters, at most max, with flags. The ones before must have had an outcome.
func (l *solLink) start(text []byte, flags byte) {
	l.pending, l.flags, l.sent, l.attempts = bytes.Clone(text), flags, false, 0
}

// idle reports whether there is nothing to be sent.
func (l *solLink) idle() bool { return len(l.pending) == 0 && l.flags == 0 }

// stop gives up what is to be sent.
func (l *solLink) stop() { l.pending, l.flags, l.sent = nil, 0, false }

// next returns the packet to be sent now: the first time, or after a while in which the BMC did not accept it. The same
// packet keeps its sequence.
func (l *solLink) next() (solPacket, outcome) {
	switch {
	case l.idle():
		return solPacket{}, accepted
	case l.attempts >= solAttempts && l.sent:
		return solPacket{}, silent
	case l.attempts >= solAttempts:
		return solPacket{}, refused
	}
	l.attempts++
	if !l.sent {
		l.sent, l.sequence = true, l.sequence%15+1
	}
	return solPacket{sequence: l.sequence, flags: l.flags, text: l.pending}, pending
}

// acknowledge processes what a packet of the BMC's says about the one that was sent.
func (l *solLink) acknowledge(p solPacket) {
	if !l.sent || p.ack == 0 || p.ack != l.sequence {
		return
	}
	n := min(int(p.accepted), len(l.pending))
	if n > 0 {
		l.attempts = 0
	}
	l.pending, l.sent = l.pending[n:], false // the rest gets a new sequence
	if p.flags&solNack == 0 {
		l.flags = 0
	}
}

// receive returns the characters of a packet of the BMC's that are new, and its acknowledgement where it needs one. A
// packet that is sent again may have more characters than before.
func (l *solLink) receive(p solPacket) (text []byte, ack solPacket, needed bool) {
	if p.sequence == 0 {
		return nil, solPacket{}, false
	}
	if p.sequence != l.received {
		l.received, l.taken = p.sequence, 0
	}
	n := min(len(p.text), solMaxText) // as many as can be acknowledged
	if n > l.taken {
		text, l.taken = p.text[l.taken:n], n
	}
	ack = solPacket{ack: p.sequence, accepted: byte(n)}
	if n < len(p.text) {
		ack.flags = solNack
	}
	return text, ack, true
}
