package bmc

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Over a link that loses and repeats packets, to a BMC that accepts parts of them, all is typed once and in order.
func TestLinkLosesPackets(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		text := make([]byte, 1+rnd.IntN(40))
		for i := range text {
			text[i] = byte(rnd.Uint32())
		}
		l := solLink{max: 28}
		l.start(text, 0)
		var typed []byte
		last := solPacket{}
		var lastAck solPacket
		for step := 0; !l.idle(); step++ {
			if step > 10_000 {
				t.Fatalf("seed %d: not sent in %d steps", seed, step)
			}
			p, what := l.next()
			if what != pending { // the BMC refused or lost too many in a row: a person types again
				l.attempts = 0
				continue
			}
			if rnd.IntN(3) == 0 {
				continue // lost
			}
			if p.sequence != last.sequence || last.sequence == 0 {
				n := rnd.IntN(len(p.text) + 1)
				typed = append(typed, p.text[:n]...)
				lastAck = solPacket{ack: p.sequence, accepted: byte(n)}
				if n < len(p.text) {
					lastAck.flags = solNack
				}
				last = p
			}
			if rnd.IntN(3) > 0 {
				l.acknowledge(lastAck)
			}
			if rnd.IntN(3) == 0 {
				l.acknowledge(lastAck) // repeated
			}
		}
		if !bytes.Equal(typed, text) {
			t.Fatalf("seed %d: typed %q; want %q", seed, typed, text)
		}
	}
}

// A packet that is sent again is not read twice; what it has more than before is.
func TestLinkReceivesOnce(t *testing.T) {
	var l solLink
	for i, tc := range []struct {
		packet solPacket
		text   string
		ack    solPacket
	}{
		{solPacket{sequence: 1, text: []byte("ab")}, "ab", solPacket{ack: 1, accepted: 2}},
		{solPacket{sequence: 1, text: []byte("ab")}, "", solPacket{ack: 1, accepted: 2}},
		{solPacket{sequence: 1, text: []byte("abc")}, "c", solPacket{ack: 1, accepted: 3}},
		{solPacket{sequence: 0, ack: 3}, "", solPacket{}},
		{solPacket{sequence: 2, text: []byte("abc")}, "abc", solPacket{ack: 2, accepted: 3}},
		{solPacket{sequence: 3, text: bytes.Repeat([]byte("x"), 300)}, string(bytes.Repeat([]byte("x"), 255)),
			solPacket{ack: 3, accepted: 255, flags: solNack}},
	} {
		text, ack, needed := l.receive(tc.packet)
		if string(text) != tc.text || !bytes.Equal(ack.encode(), tc.ack.encode()) || needed != (tc.packet.sequence != 0) {
			t.Errorf("packet %d: %q, %+v", i, text, ack)
		}
	}
}

// A BMC that acknowledges nothing is given up, and one that refuses all as well.
func TestLinkGivesUp(t *testing.T) {
	for want, flags := range map[outcome]int{silent: -1, refused: solNack | solUnavailable} {
		l := solLink{max: 28}
		l.start([]byte("x"), 0)
		sequences := map[byte]bool{}
		for range solAttempts {
			p, what := l.next()
			if what != pending {
				t.Fatalf("outcome %d too early", what)
			}
			sequences[p.sequence] = true
			if flags >= 0 {
				l.acknowledge(solPacket{ack: p.sequence, flags: byte(flags)})
			}
		}
		if _, what := l.next(); what != want || len(sequences) != map[outcome]int{silent: 1, refused: solAttempts}[want] {
			t.Errorf("outcome %d; want %d; sequences %v", what, want, sequences)
		}
	}
}

// consoleOf returns a console in a session with f, which does not run.
func consoleOf(t *testing.T, f *fakeBMC) *solConsole {
	t.Helper()
	s := &rmcpSession{conn: f}
	if err := s.login(t.Context(), fakeUser, fakePassword); err != nil {
		t.Fatal(err)
	}
	return &solConsole{session: s, text: make(chan []byte, solQueue), link: solLink{max: 28}}
}

// Only packets that the BMC authenticated, and each once, have an effect.
func TestConsoleAcceptsOnlyTheBMC(t *testing.T) {
	f := &fakeBMC{suites: []int{17}}
	c := consoleOf(t, f)
	seal := func(keys *sessionKeys, session, sequence uint32) []byte {
		return keys.seal(packet{kind: payloadSOL, session: session, sequence: sequence,
			payload: solPacket{sequence: 1, flags: solEnded, text: []byte("forged")}.encode()})
	}
	other := f.login
	other.key = []byte("another")
	otherKeys, _ := other.keys()
	c.session.received = 7
	for name, b := range map[string][]byte{
		"no proof":        seal(nil, 0, 9),
		"other keys":      seal(otherKeys, f.login.console, 9),
		"replayed":        seal(f.keys, f.login.console, 7),
		"another session": seal(f.keys, f.login.console+1, 9),
		"not encrypted":   sealRaw(f.keys, flagAuthenticated|payloadSOL, f.login.console, []byte{1, 0, 0, solEnded, 'x'}),
		"empty":           {},
	} {
		if err := c.handle(b); err != nil || len(c.text) > 0 || c.session.received != 7 {
			t.Errorf("%s: %v, %d packets of text", name, err, len(c.text))
		}
	}
	if err := c.handle(seal(f.keys, f.login.console, 8)); err != ErrConsoleEnded || len(c.text) != 1 {
		t.Errorf("the BMC's: %v, %d packets of text", err, len(c.text))
	}
}

// Whatever an authenticated BMC sends: no panic, bounded text, and what is to be typed only gets shorter.
func FuzzSOL(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 'a', 'b'}, []byte{0, 1, 3, 0}, byte(payloadSOL))
	f.Add([]byte{0, 1, 1, solNack}, []byte{0, 2, 255, solNack | solUnavailable}, byte(payloadSOL))
	f.Add([]byte{1, 0, 0, solEnded}, []byte{}, byte(payloadSOL))
	f.Add(response(message{netFn: netApp, command: cmdPayloadInstance}, []byte{0, 9, 0, 0, 0}), []byte{1},
		byte(payloadIPMI))
	f.Fuzz(func(t *testing.T, first, second []byte, kind byte) {
		bmc := &fakeBMC{suites: []int{17}}
		c := consoleOf(t, bmc)
		c.owner = 7
		typed := []byte("to be typed")
		c.link.start(typed, solBreak)
		for i, payload := range [][]byte{first, second, first} {
			p, what := c.link.next()
			if what == pending && (p.sequence < 1 || p.sequence > 15 || !bytes.HasSuffix(typed, p.text)) {
				t.Fatalf("it sends %+v", p)
			}
			sent := packet{kind: kind, session: bmc.login.console, sequence: uint32(i + 1), payload: payload}
			c.handle(bmc.keys.seal(sent))
			if len(c.text) > i+1 {
				t.Fatalf("%d packets of text after %d", len(c.text), i+1)
			}
		}
		for len(c.text) > 0 {
			if text := <-c.text; len(text) == 0 || len(text) > solMaxText {
				t.Fatalf("text of %d characters", len(text))
			}
		}
	})
}

// A BMC is lost after three requests without an answer, however long ago it has sent something: the head may have been
// paused, and reads the answer after the pause.
func TestKeepalivesAfterAPause(t *testing.T) {
	var k keepalives
	for range 2 {
		for n := range 3 {
			if k.lost() {
				t.Fatalf("lost with %d requests unanswered", n)
			}
		}
		k.heard()
	}
	for range 3 {
		k.lost()
	}
	if !k.lost() {
		t.Error("not lost with three requests unanswered")
	}
}
