// Package console keeps serial consoles of machines open on this head, and reaches those that other heads have open:
// BMCs permit one session. No record says which head that is: heads ask each other, and the BMC refuses a second one.
package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/wait"
)

// Bounds.
const (
	// MaxKept bounds the text of one console that is kept for its readers, in bytes.
	MaxKept = 64 << 10
	// maxOpen bounds the consoles that one head has open.
	maxOpen = 512
)

// Times.
const (
	// readWait is how long a read waits for text.
	readWait = 5 * time.Second
	// idleTimeout is how long a console stays open that is not read.
	idleTimeout = 20 * time.Second
	// openTimeout bounds the opening at a BMC, and queryTimeout a query to another head, beyond what that one waits.
	openTimeout  = 20 * time.Second
	queryTimeout = 3 * time.Second
	// openingWait is how long a request waits before it asks again for a console that is being opened.
	openingWait = 200 * time.Millisecond
)

// Config is what Consoles needs.
type Config struct {
	Self   string // this head's name
	Tables *state.Tables
	Client *peer.Client
	Unseal state.Unseal
	Log    *slog.Logger
	// Metrics count the errors of BMCs; nil: they are not counted.
	Metrics *bmc.Metrics
}

// Consoles are the consoles of all machines, as this head reaches them.
type Consoles struct {
	Config
	stopping context.Context
	stop     context.CancelFunc
	sessions sync.WaitGroup
	mu       sync.Mutex
	open     map[string]*session // guarded by mu; by machine
	opening  map[string]bool     // guarded by mu; machines whose BMC is being asked
}

// New returns the consoles; none is open.
func New(cfg Config) *Consoles {
	c := &Consoles{Config: cfg, open: map[string]*session{}, opening: map[string]bool{}}
	c.stopping, c.stop = context.WithCancel(context.Background())
	return c
}

// Close closes the consoles that this head has open, so that other heads can open them at once.
func (c *Consoles) Close() {
	c.stop()
	c.sessions.Wait()
}

// Open opens the console of a machine, or returns the session in which a head has it open.
func (c *Consoles) Open(ctx context.Context, machine string, req trivet.ConsoleRequest) (trivet.ConsoleSession, error) {
	if s := c.local(machine); s != nil {
		return s.describe(), nil
	}
	found, unreachable := c.find(ctx, machine)
	if found != nil {
		return *found, nil
	}
	_, head := splitSession(req.Previous)
	s, err := c.openLocal(ctx, machine, req.Take || unreachable[head])
	switch {
	case errors.Is(err, errOpening):
		if err := wait.Sleep(ctx, openingWait); err != nil {
			return trivet.ConsoleSession{}, err
		}
		return c.Open(ctx, machine, req)
	case errors.Is(err, bmc.ErrConsoleInUse): // by another head just now?
		if found, _ := c.find(ctx, machine); found != nil {
			return *found, nil
		}
	}
	if err != nil {
		return trivet.ConsoleSession{}, err
	}
	return s.describe(), nil
}

// Read waits for the text of a machine from an offset of its session. It fails with ErrNotFound where the session has
// ended or its head is lost.
func (c *Consoles) Read(ctx context.Context, machine, id string, from int64) (text trivet.ConsoleText, err error) {
	req := request{Machine: machine, Session: id, From: from}
	if _, head := splitSession(id); head != c.Self {
		err = c.relay(ctx, head, readPath, req, &text)
		return text, err
	}
	return c.serveRead(ctx, req)
}

// Write sends input to a machine in a session. It fails as Read does, and with ErrUnavailable where the machine does
// not take the input.
func (c *Consoles) Write(ctx context.Context, machine string, in trivet.ConsoleInput) error {
	if len(in.Text) > trivet.MaxConsoleInput {
		return fmt.Errorf("console of %s: %w: input of %d bytes, at most %d at once", machine, trivet.ErrTooLarge,
			len(in.Text), trivet.MaxConsoleInput)
	}
	req := request{Machine: machine, Session: in.Session, Text: in.Text, Break: in.Break}
	if _, head := splitSession(in.Session); head != c.Self {
		return c.relay(ctx, head, writePath, req, &struct{}{})
	}
	return c.serveWrite(req)
}

// local returns the session of a machine that this head has open; nil: none.
func (c *Consoles) local(machine string) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.open[machine]; s != nil && s.touch() {
		return s
	}
	return nil
}

// openLocal opens a console at its BMC.
func (c *Consoles) openLocal(ctx context.Context, machine string, take bool) (*session, error) {
	m, err := c.Tables.Machines.Get(machine)
	if err != nil {
		return nil, err
	}
	if m.Spec.BMC == nil {
		return nil, &trivet.Error{Op: "open console of", Kind: "Machine", Name: machine, Err: bmc.ErrNoConsole,
			Hint: "set spec.bmc of the machine"}
	}
	if err := c.begin(machine); err != nil {
		return nil, err
	}
	defer c.end(machine)
	cfg, err := c.Tables.BMC(m, c.Unseal)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	line, err := bmc.OpenConsole(ctx, cfg, take)
	if err != nil {
		c.Metrics.Failed("console", err)
		return nil, err
	}
	s := &session{id: joinSession(rand.Text(), c.Self), head: c.Self, line: line, read: time.Now(),
		changed: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[machine] = s
	c.sessions.Go(func() { c.serve(machine, s) })
	return s, nil
}

// errOpening: another request is opening the console.
var errOpening = errors.New("the console is being opened")

// begin reserves the opening of a machine's console, which one request does at a time.
func (c *Consoles) begin(machine string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopping.Err() != nil:
		return fmt.Errorf("%w: this head is about to stop", trivet.ErrUnavailable)
	case c.opening[machine]:
		return errOpening
	case len(c.open)+len(c.opening) >= maxOpen:
		return fmt.Errorf("%w: this head has %d consoles open", trivet.ErrUnavailable, maxOpen)
	}
	c.opening[machine] = true
	return nil
}

func (c *Consoles) end(machine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.opening, machine)
}

// serve keeps a session until it has ended, and for a while after that, so that its readers learn why.
func (c *Consoles) serve(machine string, s *session) {
	c.Log.Info("console opened", "machine", machine)
	stop := context.AfterFunc(c.stopping, s.close)
	defer stop()
	s.run()
	c.Log.Info("console closed", "machine", machine, "error", s.ended)
	select {
	case <-c.stopping.Done():
	case <-time.After(idleTimeout):
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[machine] == s {
		delete(c.open, machine)
	}
}

// The name of a session is its ID and the name of its head.
func joinSession(id, head string) string { return id + "." + head }

func splitSession(session string) (id, head string) {
	id, head, _ = strings.Cut(session, ".")
	return id, head
}
