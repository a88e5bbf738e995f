package bmc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trivet-project/trivet"
)

// Times of a console.
const (
	// solRetry is how long the BMC may take to accept a packet before it is sent again.
	solRetry = 500 * time.Millisecond
	// solClose bounds the end of a session.
	solClose = 3 * time.Second
)

// solQueue bounds the packets of text that were not read. Further ones are not acknowledged, so the BMC keeps them.
const solQueue = 64

// solConsole is a [Console] by IPMI serial over LAN. BMCs permit one at a time.
type solConsole struct {
	keepalives
	cfg     Config
	session *rmcpSession
	link    solLink
	text    chan []byte // of the machine; closed at the end
	rest    []byte      // what the last Read left
	input   chan *solInput
	stop    context.CancelCauseFunc
	done    chan struct{} // closed at the end, after err is set
	err     error
	owner   uint32 // the session that has the console, as the BMC reports it; 0: it does not
}

// solInput is characters for the machine.
type solInput struct {
	text   []byte
	flags  byte
	result chan error // buffered
}

func openSOL(ctx context.Context, cfg Config, take bool) (Console, error) {
	client, err := openIPMI(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b := client.(*ipmiBMC)
	size, owner, err := b.activate(ctx, take)
	if err != nil {
		b.Close()
		return nil, err
	}
	c := &solConsole{cfg: cfg, session: b.session, owner: owner, link: solLink{max: size}}
	c.start()
	return c, nil
}

// start runs the session.
func (c *solConsole) start() {
	var ctx context.Context
	ctx, c.stop = context.WithCancelCause(context.Background())
	c.session.conn.SetReadDeadline(time.Time{}) // of the last command
	c.text, c.input, c.done = make(chan []byte, solQueue), make(chan *solInput), make(chan struct{})
	go c.run(ctx)
}

// Read reads what the machine wrote.
func (c *solConsole) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		text, ok := <-c.text
		if !ok {
			return 0, c.err
		}
		c.rest = text
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// Write sends characters to the machine, and returns when the BMC has accepted them. It fails with ErrUnavailable where
// the machine does not take them; the console stays open then.
func (c *solConsole) Write(p []byte) (n int, err error) {
	for n < len(p) {
		size := min(c.link.max, len(p)-n)
		if err := c.send(p[n:n+size], 0); err != nil {
			return n, err
		}
		n += size
	}
	return n, nil
}

// Break sends a break.
func (c *solConsole) Break() error { return c.send(nil, solBreak) }

func (c *solConsole) send(text []byte, flags byte) error {
	in := &solInput{text: text, flags: flags, result: make(chan error, 1)}
	select {
	case c.input <- in:
	case <-c.done:
		return c.err
	}
	select {
	case err := <-in.result:
		return err
	case <-c.done:
		return c.err
	}
}

// Close ends the session. It may take seconds where the BMC does not answer.
func (c *solConsole) Close() {
	c.stop(io.EOF)
	<-c.done
}

// run exchanges packets until the session ends.
func (c *solConsole) run(ctx context.Context) {
	datagrams, received := make(chan []byte), make(chan struct{})
	go func() {
		defer close(received)
		c.receive(ctx, datagrams)
	}()
	err := c.serve(ctx, datagrams)
	c.stop(err)
	c.session.conn.SetReadDeadline(time.Unix(1, 0))
	<-received
	if !errors.Is(err, errNoAnswer) {
		c.end()
	}
	c.session.conn.Close()
	if !errors.Is(err, io.EOF) {
		err = fail("use console of", c.cfg, "open it again", unsent(err, trivet.ErrUnavailable))
	}
	c.err = err
	close(c.done)
	close(c.text)
}

// receive passes on datagrams, of which those of the BMC are recognised later, until ctx ends.
func (c *solConsole) receive(ctx context.Context, datagrams chan<- []byte) {
	for ctx.Err() == nil {
		buf := make([]byte, 2048)
		n, err := c.session.conn.Read(buf)
		if err != nil { // such as a port that is closed for a moment, as the BMC restarts
			select {
			case <-ctx.Done():
			case <-time.After(firstWait):
			}
			continue
		}
		select {
		case datagrams <- buf[:n]:
		case <-ctx.Done():
		}
	}
}

// serve returns why the session ended: io.EOF where it was closed.
func (c *solConsole) serve(ctx context.Context, datagrams <-chan []byte) error {
	keepalive := time.NewTicker(consoleKeepalive)
	defer keepalive.Stop()
	retry := time.NewTicker(solRetry)
	defer retry.Stop()
	var now *solInput // what is being sent; nil: nothing
	for {
		input, due := c.input, false
		if now != nil {
			input = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case now = <-input:
			c.link.start(now.text, now.flags)
			retry.Reset(solRetry)
			due = true
		case <-retry.C:
			due = true
		case <-keepalive.C:
			if c.lost() {
				return fmt.Errorf("%w for %s", errNoAnswer, 3*consoleKeepalive)
			}
			c.transmit(payloadIPMI, message{netFn: netApp, command: cmdPayloadInstance, data: solInstance}.request())
		case b := <-datagrams:
			rest := len(c.link.pending)
			if err := c.handle(b); err != nil {
				return err
			}
			due = c.link.idle() || len(c.link.pending) < rest
		}
		if now != nil && due {
			ended, err := c.advance(now)
			if err != nil {
				return err
			}
			if ended {
				now = nil
			}
		}
	}
}

// advance sends what is to be sent of an input now, and reports whether the input has ended.
func (c *solConsole) advance(in *solInput) (ended bool, err error) {
	p, what := c.link.next()
	switch what {
	case accepted:
		in.result <- nil
	case refused:
		c.link.stop()
		in.result <- fmt.Errorf("%w: the machine takes no input: it may be off", trivet.ErrUnavailable)
	case silent:
		return false, fmt.Errorf("%w: the BMC does not acknowledge input", errNoAnswer)
	default:
		c.transmit(payloadSOL, p.encode())
		return false, nil
	}
	return true, nil
}

// transmit sends a packet. Errors are ignored: a packet may be lost in any case.
func (c *solConsole) transmit(kind byte, payload []byte) {
	s := c.session
	s.sequence++
	s.conn.Write(s.keys.seal(packet{kind: kind, session: s.bmc, sequence: s.sequence, payload: payload}))
}

// handle processes a datagram. Only one that the BMC authenticated has an effect.
func (c *solConsole) handle(b []byte) error {
	s := c.session
	p, err := s.keys.open(b)
	if err != nil || p.session != s.console || p.sequence <= s.received {
		return nil
	}
	s.received = p.sequence
	c.heard()
	switch p.kind {
	case payloadIPMI:
		return c.handleInstance(p.payload)
	case payloadSOL:
		return c.handleSOL(p.payload)
	}
	return nil
}

// handleInstance processes the response to a keepalive. Some BMCs do not report it otherwise if the console was taken.
func (c *solConsole) handleInstance(payload []byte) error {
	m, err := parseResponse(payload)
	if err != nil || m.command != cmdPayloadInstance || len(m.data) < 5 || m.data[0] != 0 {
		return nil
	}
	if c.owner != 0 && binary.LittleEndian.Uint32(m.data[1:]) != c.owner {
		return ErrConsoleEnded
	}
	return nil
}

func (c *solConsole) handleSOL(payload []byte) error {
	p, err := parseSOL(payload)
	if err != nil {
		return nil
	}
	c.link.acknowledge(p)
	if len(c.text) < cap(c.text) { // else the BMC sends it again
		text, ack, needed := c.link.receive(p)
		if len(text) > 0 {
			c.text <- text
		}
		if needed {
			c.transmit(payloadSOL, ack.encode())
		}
	}
	if p.flags&solEnded != 0 {
		return ErrConsoleEnded
	}
	return nil
}

// end closes the session on the BMC, and with it the console. Errors are ignored: the BMC ends an idle session.
func (c *solConsole) end() {
	ctx, cancel := context.WithTimeout(context.Background(), solClose)
	defer cancel()
	if owner, err := consoleOwner(ctx, c.session); err == nil && owner == c.owner { // else another session has it
		c.session.call(ctx, netApp, cmdDeactivatePayload, solPayload()...)
	}
	c.session.call(ctx, netApp, cmdCloseSession, le32(c.session.bmc)...)
}
