package bmc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// fakeBMC is the other end of a session, in memory: it answers each packet at once, and a test may put other
// packets in place of its answers. A read without a packet times out at once.
type fakeBMC struct {
	net.Conn
	suites  []int
	data    func(message) []byte                // the completion code and data of an answer; nil: 0 and the power off
	corrupt func(n int, packet []byte) [][]byte // n counts answers; nil: none is changed

	login    rakp
	keys     *sessionKeys
	sent     uint32
	answers  int
	queue    [][]byte
	requests []message
}

const fakeUser, fakePassword = "trivet", "hunter2"

func (f *fakeBMC) SetReadDeadline(time.Time) error { return nil }
func (f *fakeBMC) Close() error                    { return nil }

func (f *fakeBMC) Read(b []byte) (int, error) {
	if len(f.queue) == 0 {
		return 0, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	}
	n := copy(b, f.queue[0])
	f.queue = f.queue[1:]
	return n, nil
}

func (f *fakeBMC) Write(b []byte) (int, error) {
	answer := f.answer(b)
	if answer == nil {
		return len(b), nil
	}
	packets := [][]byte{answer}
	if f.corrupt != nil {
		packets = f.corrupt(f.answers, answer)
	}
	f.answers++
	f.queue = append(f.queue, packets...)
	return len(b), nil
}

func (f *fakeBMC) answer(b []byte) []byte {
	if p, err := f.keys.open(b); err == nil && f.keys != nil {
		if p.kind != payloadIPMI {
			return nil
		}
		return f.command(p.payload)
	}
	p, err := (*sessionKeys)(nil).open(b)
	if err != nil {
		return nil
	}
	kind, payload := f.step(p)
	return (*sessionKeys)(nil).seal(packet{kind: kind, payload: payload})
}

// step is the BMC's side of a login.
func (f *fakeBMC) step(p packet) (kind byte, answer []byte) {
	b := p.payload
	r := &f.login
	switch p.kind {
	case payloadOpenRequest:
		i := slices.IndexFunc(suites, func(s suite) bool { return s.login == b[12] && slices.Contains(f.suites, s.id) })
		if i < 0 {
			return payloadOpenResponse, []byte{b[0], 0x11}
		}
		*r = rakp{suite: suites[i], key: []byte(fakePassword), console: binary.LittleEndian.Uint32(b[4:]), bmc: 7,
			guid: make([]byte, 16)}
		return payloadOpenResponse, slices.Concat([]byte{b[0], 0, 3, 0}, b[4:8], le32(r.bmc), b[8:32])
	case payloadRAKP1:
		r.consoleRandom, r.bmcRandom = bytes.Clone(b[8:24]), make([]byte, 16)
		rand.Read(r.bmcRandom)
		r.who = slices.Concat(b[24:25], b[27:])
		return payloadRAKP2, slices.Concat([]byte{b[0], 0, 0, 0}, le32(r.console), r.bmcRandom, r.guid, r.fromBMC())
	case payloadRAKP3:
		if !bytes.Equal(b[8:], r.fromConsole()) {
			return payloadRAKP4, []byte{b[0], 0x0f, 0, 0}
		}
		f.keys, _ = r.keys()
		return payloadRAKP4, slices.Concat([]byte{b[0], 0, 0, 0}, le32(r.console), r.confirmation())
	}
	return 0, nil
}

// command answers every command in the session; a machine behind it is off.
func (f *fakeBMC) command(b []byte) []byte {
	m := message{netFn: b[1] >> 2, sequence: b[4] >> 2, command: b[5], data: b[6 : len(b)-1]}
	f.requests = append(f.requests, m)
	if f.data != nil {
		return f.respond(m, f.data(m))
	}
	return f.respond(m, []byte{0, 0, 0, 0})
}

func (f *fakeBMC) respond(m message, data []byte) []byte {
	f.sent++
	return f.keys.seal(packet{kind: payloadIPMI, session: f.login.console, sequence: f.sent,
		payload: response(m, data)})
}

// response writes what parseResponse reads.
func response(m message, data []byte) []byte {
	b := []byte{addressConsole, (m.netFn | 1) << 2, 0, addressBMC, m.sequence << 2, m.command}
	b[2] = checksum(b[:2])
	b = append(b, data...)
	return append(b, checksum(b[3:]))
}

// readPower logs in to f and reads the power.
func readPower(ctx context.Context, f *fakeBMC) (State, error) {
	s := &rmcpSession{conn: f}
	if err := s.login(ctx, fakeUser, fakePassword); err != nil {
		return "", err
	}
	return power(ctx, s)
}

func TestRMCPChoosesTheBestSuite(t *testing.T) {
	for _, offered := range [][]int{{3, 17}, {17}, {3}} {
		f := &fakeBMC{suites: offered}
		if state, err := readPower(t.Context(), f); err != nil || state != Off ||
			f.login.suite.id != slices.Max(offered) {
			t.Errorf("%v: suite %d, %q, %v", offered, f.login.suite.id, state, err)
		}
	}
	if _, err := readPower(t.Context(), &fakeBMC{}); !errors.Is(err, trivet.ErrUnavailable) {
		t.Errorf("no suite in common: %v", err)
	}
}

// Whatever bit of an answer is changed in transit: the head reads the true state or an error, never another
// state. If the true answer follows the changed one, the head reads the true state in the session, and never
// hangs.
func TestRMCPAcceptsOnlyTheBMC(t *testing.T) {
	const steps = 4 // open session, RAKP 2, RAKP 4, chassis status
	for step := range steps {
		size := 0
		f := &fakeBMC{suites: []int{17}, corrupt: func(n int, p []byte) [][]byte {
			if n == step {
				size = len(p)
			}
			return [][]byte{p}
		}}
		if _, err := readPower(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		for i := range size * 8 {
			for _, then := range []bool{false, true} {
				f := &fakeBMC{suites: []int{17}, corrupt: func(n int, p []byte) [][]byte {
					if n != step {
						return [][]byte{p}
					}
					changed := bytes.Clone(p)
					changed[i/8] ^= 1 << (i % 8)
					if then {
						return [][]byte{changed, p}
					}
					return [][]byte{changed}
				}}
				state, err := readPower(t.Context(), f)
				if err == nil && state != Off || err != nil && then && step == steps-1 {
					t.Errorf("step %d, bit %d, true answer after it: %v: %q, %v", step, i, then, state, err)
				}
			}
		}
	}
}

// Packets that can be sent without the password are ignored: those that another client accepts.
func TestRMCPForgedAnswers(t *testing.T) {
	on := []byte{0, 1, 0, 0}
	const sealed = flagEncrypted | flagAuthenticated
	forge := map[string]func(f *fakeBMC, m message, answer []byte) []byte{
		"no proof, no encryption": func(_ *fakeBMC, m message, _ []byte) []byte {
			return (*sessionKeys)(nil).seal(packet{kind: payloadIPMI, payload: response(m, on)})
		},
		"no proof, right session": func(f *fakeBMC, m message, _ []byte) []byte {
			return (*sessionKeys)(nil).seal(packet{kind: payloadIPMI, session: f.login.console, sequence: 99,
				payload: response(m, on)})
		},
		"IPMI 1.5": func(_ *fakeBMC, m message, _ []byte) []byte {
			b := response(m, on)
			return slices.Concat(rmcpHeader, make([]byte, 9), []byte{byte(len(b))}, b)
		},
		"other keys": func(f *fakeBMC, m message, _ []byte) []byte {
			r := f.login
			r.key = []byte("another")
			keys, _ := r.keys()
			return keys.seal(packet{kind: payloadIPMI, session: r.console, sequence: 99, payload: response(m, on)})
		},
		"turned over by its IV": func(_ *fakeBMC, m message, answer []byte) []byte {
			b, off, turned := bytes.Clone(answer), response(m, make([]byte, 4)), response(m, on)
			for i := range off { // the first block of CBC, whose plain text is known
				b[16+i] ^= off[i] ^ turned[i]
			}
			return b
		},
		"authenticated, but not encrypted": func(f *fakeBMC, m message, _ []byte) []byte {
			return sealRaw(f.keys, flagAuthenticated, f.login.console, response(m, on))
		},
		"replayed": func(f *fakeBMC, m message, _ []byte) []byte {
			f.sent = 0 // as if the BMC had sent it before
			return f.respond(m, on)
		},
		"of another request": func(f *fakeBMC, m message, _ []byte) []byte {
			m.sequence--
			return f.respond(m, on)
		},
		"another command": func(f *fakeBMC, m message, _ []byte) []byte { m.command++; return f.respond(m, on) },
		"another session": func(f *fakeBMC, m message, _ []byte) []byte {
			g := *f
			g.login.console++
			return g.respond(m, on)
		},
		"encrypted, 1 block": func(f *fakeBMC, _ message, _ []byte) []byte {
			return sealRaw(f.keys, sealed, f.login.console, make([]byte, 16))
		},
		"nothing in it": func(f *fakeBMC, _ message, _ []byte) []byte {
			return sealRaw(f.keys, sealed, f.login.console, nil)
		},
		"cut":         func(_ *fakeBMC, _ message, answer []byte) []byte { return answer[:20] },
		"header only": func(_ *fakeBMC, _ message, answer []byte) []byte { return answer[:4] },
	}
	for name, change := range forge {
		t.Run(name, func(t *testing.T) {
			f := &fakeBMC{suites: []int{17}}
			f.corrupt = func(n int, p []byte) [][]byte {
				if n < 4 {
					return [][]byte{p}
				}
				f.sent += 10
				return [][]byte{change(f, f.requests[len(f.requests)-1], p)}
			}
			s := &rmcpSession{conn: f}
			if err := s.login(t.Context(), fakeUser, fakePassword); err != nil {
				t.Fatal(err)
			}
			if state, err := power(t.Context(), s); err != nil || state != Off {
				t.Fatalf("before: %q, %v", state, err)
			}
			if state, err := power(t.Context(), s); !errors.Is(err, errNoAnswer) {
				t.Errorf("believed: %q, %v", state, err)
			}
			if n := len(f.requests); n != 1+rmcpAttempts {
				t.Errorf("%d requests; want one and %d attempts", n, rmcpAttempts)
			}
		})
	}
}

// sealRaw authenticates a payload without encrypting it.
func sealRaw(k *sessionKeys, flags byte, session uint32, payload []byte) []byte {
	b := slices.Concat(rmcpHeader, []byte{formatRMCPPlus, flags}, le32(session), le32(99),
		[]byte{byte(len(payload)), 0}, payload, []byte{0, 7})
	return append(b, k.authCode(b[len(rmcpHeader):])...)
}

// The BMC proves that it has the password, in RAKP 2 and again in RAKP 4.
func TestRMCPLoginNeedsTheProof(t *testing.T) {
	for step := 1; step <= 2; step++ {
		f := &fakeBMC{suites: []int{17}, corrupt: func(n int, p []byte) [][]byte {
			if n >= step {
				p[len(p)-1] ^= 1
			}
			return [][]byte{p}
		}}
		s := &rmcpSession{conn: f}
		if err := s.login(t.Context(), fakeUser, fakePassword); err == nil {
			t.Errorf("login done with a wrong proof in step %d", step)
		}
	}
}

// A service in front of the BMC must not downgrade the session to weaker algorithms.
func TestRMCPRefusesDowngrade(t *testing.T) {
	for _, at := range []int{16, 24, 32} {
		f := &fakeBMC{suites: []int{17, 3}, corrupt: func(n int, p []byte) [][]byte {
			if len(p) == 16+36 {
				p[16+at] = 0 // none
			}
			return [][]byte{p}
		}}
		if state, err := readPower(t.Context(), f); !errors.Is(err, errSuite) {
			t.Errorf("algorithm at %d set to none: %q, %v", at, state, err)
		}
	}
}

func TestRMCPLosesPackets(t *testing.T) {
	lost := 0
	f := &fakeBMC{suites: []int{17}, corrupt: func(n int, p []byte) [][]byte {
		if n%rmcpAttempts != rmcpAttempts-1 { // all but the last attempt of each step
			lost++
			return nil
		}
		return [][]byte{p}
	}}
	if state, err := readPower(t.Context(), f); err != nil || state != Off || lost != 4*(rmcpAttempts-1) {
		t.Errorf("%q, %v, lost %d", state, err, lost)
	}
}

// No answer of a BMC that has the password makes the head panic, in the login or in the session.
func FuzzRMCP(f *testing.F) {
	for step := range 5 {
		f.Add(step, []byte{}, true)
		f.Add(step, []byte{0, 0, 0, 0}, true)
		f.Add(step, append(bytes.Clone(rmcpHeader), 6, 0xc0), false)
		f.Add(step, response(message{netFn: netChassis, sequence: 2, command: cmdChassisStatus}, []byte{0}), true)
	}
	f.Fuzz(func(t *testing.T, step int, b []byte, inside bool) {
		bmc := &fakeBMC{suites: []int{17, 3}}
		bmc.corrupt = func(n int, p []byte) [][]byte {
			switch {
			case n != step:
				return [][]byte{p}
			case !inside:
				return [][]byte{b}
			case bmc.keys != nil && n > 2:
				return [][]byte{bmc.keys.seal(packet{kind: payloadIPMI, session: bmc.login.console, sequence: bmc.sent,
					payload: b})}
			}
			return [][]byte{(*sessionKeys)(nil).seal(packet{kind: p[5], payload: b})}
		}
		c := &ipmiBMC{session: &rmcpSession{conn: bmc}, used: time.Now()}
		if err := c.session.login(t.Context(), fakeUser, fakePassword); err != nil {
			return
		}
		c.session.call(t.Context(), netApp, cmdSetPrivilege, privilegeOperator)
		power(t.Context(), c.session)
		c.Close()
	})
}
