package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/trivet-project/trivet"
)

// A read waits some seconds at the head for text.
const (
	consoleBegin   = 10 * time.Second
	consoleTimeout = 30 * time.Second
)

// Console is the open serial console of a machine, see [Client.OpenConsole]. One goroutine may read and another one
// write at the same time.
type Console struct {
	c       *Client
	machine string

	mu      sync.Mutex
	session trivet.ConsoleSession // guarded by mu
}

// OpenConsole opens the serial console of a machine, or joins the session that other clients have. With take, the
// session of another program at the BMC is ended; else that is an ErrConflict. The account needs role operator. A
// console that is not read for a while is closed.
func (c *Client) OpenConsole(ctx context.Context, machine string, take bool) (*Console, error) {
	if err := trivet.ValidateName(machine); err != nil {
		return nil, err
	}
	k := &Console{c: c, machine: machine}
	return k, k.open(ctx, trivet.ConsoleRequest{Take: take}, false)
}

func (k *Console) open(ctx context.Context, req trivet.ConsoleRequest, again bool) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	var s trivet.ConsoleSession
	_, err = k.c.json(ctx, call{method: http.MethodPost, path: k.path(), body: body, begin: consoleBegin,
		timeout: consoleTimeout, retry: again}, &s)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.session = s
	return nil
}

func (k *Console) path() string { return "/v1/machines/" + url.PathEscape(k.machine) + "/console" }

func (k *Console) current() trivet.ConsoleSession {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.session
}

// Head returns the head that talks to the BMC.
func (k *Console) Head() string { return k.current().Head }

// Read returns what the machine wrote since the last read. It waits for that some seconds, so the text may be empty.
// Where the session was lost, such as with its head, it opens another one and reports reopened: text in between is
// lost.
func (k *Console) Read(ctx context.Context) (text trivet.ConsoleText, reopened bool, err error) {
	s := k.current()
	_, err = k.c.json(ctx, call{method: http.MethodGet, path: k.path(),
		query: url.Values{"session": {s.Session}, "from": {strconv.FormatInt(s.Offset, 10)}},
		begin: consoleBegin, timeout: consoleTimeout, retry: true}, &text)
	if errors.Is(err, trivet.ErrNotFound) {
		err = k.open(ctx, trivet.ConsoleRequest{Previous: s.Session}, true)
		return text, err == nil, err
	}
	if err == nil {
		k.mu.Lock()
		k.session.Offset = text.Next
		k.mu.Unlock()
	}
	return text, false, err
}

// Write types on the console. It is not repeated at another head: what may have been typed must not be typed again.
func (k *Console) Write(ctx context.Context, text []byte) error {
	for len(text) > 0 {
		n := min(len(text), trivet.MaxConsoleInput)
		if err := k.input(ctx, trivet.ConsoleInput{Text: text[:n]}); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// Break sends a break.
func (k *Console) Break(ctx context.Context) error {
	return k.input(ctx, trivet.ConsoleInput{Break: true})
}

func (k *Console) input(ctx context.Context, in trivet.ConsoleInput) error {
	in.Session = k.current().Session
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	_, err = k.c.json(ctx, call{method: http.MethodPost, path: k.path() + "/input", body: body, begin: consoleBegin,
		timeout: consoleTimeout, once: true}, nil)
	if err != nil {
		return fmt.Errorf("type on the console of %s: %w", k.machine, err)
	}
	return nil
}
