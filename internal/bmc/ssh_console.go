package bmc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trivet-project/trivet"
)

// sshConsole is a [Console] by SSH. What was not read is bounded by the window of the session: 2 MiB.
type sshConsole struct {
	cfg     Config
	conn    *sshConn
	client  *ssh.Client
	session *ssh.Session
	in      io.Writer
	out     io.Reader
	done    chan struct{} // closed at the end, after err is set
	once    sync.Once
	err     error
	kept    sync.WaitGroup
}

// openSSH opens the console that the Redfish service offers by SSH.
func openSSH(ctx context.Context, cfg Config) (Console, error) {
	target, err := findConsole(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return startSSH(ctx, cfg, target)
}

// startSSH logs in and starts the console.
func startSSH(ctx context.Context, cfg Config, target sshTarget) (Console, error) {
	conn, client, err := dialSSH(ctx, cfg, target.address)
	if err != nil {
		return nil, err
	}
	c := &sshConsole{cfg: cfg, conn: conn, client: client, done: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { client.Close() })
	if err := c.begin(target.command); err != nil || !stop() {
		client.Close()
		hint := "end other sessions of the BMC's console; the BMC may permit one only"
		if ended(ctx) == nil {
			return nil, fail(opOpenConsole, cfg, hint, err)
		}
		return nil, explainSSH(ctx, cfg, target.address, err)
	}
	c.kept.Go(c.keep)
	return c, nil
}

// begin starts the console in a session with a terminal. The command is run by itself and not typed into a shell: after
// its end there is no command line of the BMC that those who use the console could type into.
func (c *sshConsole) begin(command string) (err error) {
	if c.session, err = c.client.NewSession(); err != nil {
		return fmt.Errorf("%w: the BMC refuses a session: %s", ErrConsoleInUse, printable(err.Error()))
	}
	in, err1 := c.session.StdinPipe()
	out, err2 := c.session.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	c.in, c.out = in, out
	_ = c.session.RequestPty("vt100", 24, 80, ssh.TerminalModes{}) // some BMCs have none, and need none
	what := "start the console"
	if command == "" {
		err = c.session.Shell()
	} else {
		err, what = c.session.Start(command), fmt.Sprintf("run %q, which enters the console", command)
	}
	if err != nil {
		return fmt.Errorf("%w: the BMC does not %s: %s", trivet.ErrUnavailable, what, printable(err.Error()))
	}
	return nil
}

// keep sends keepalives until the session ends. Any answer will do.
func (c *sshConsole) keep() {
	tick := time.NewTicker(consoleKeepalive)
	defer tick.Stop()
	var waiting atomic.Bool
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		if c.conn.lost() {
			c.end(fmt.Errorf("%w: %w for %s", trivet.ErrUnavailable, errNoAnswer, 3*consoleKeepalive))
			return
		}
		if !waiting.Swap(true) {
			c.kept.Go(func() {
				defer waiting.Store(false)
				c.client.SendRequest("keepalive@openssh.com", true, nil)
			})
		}
	}
}

// end ends the session, and returns why it has ended: the first reason.
func (c *sshConsole) end(why error) error {
	c.once.Do(func() {
		if !errors.Is(why, io.EOF) {
			why = fail("use console of", c.cfg, "open it again", why)
		}
		c.err = why
		close(c.done)
		c.client.Close()
	})
	<-c.done
	return c.err
}

// Read implements [Console].
func (c *sshConsole) Read(p []byte) (int, error) {
	n, err := c.out.Read(p)
	if err != nil {
		err = c.end(ErrConsoleEnded)
	}
	return n, err
}

// Write implements [Console].
func (c *sshConsole) Write(p []byte) (n int, err error) {
	defer c.limit().Stop()
	if n, err = c.in.Write(p); err != nil {
		err = c.end(ErrConsoleEnded)
	}
	return n, err
}

// Break implements [Console] (RFC 4335).
func (c *sshConsole) Break() error {
	defer c.limit().Stop()
	length := struct{ Milliseconds uint32 }{500}
	done, err := c.session.SendRequest("break", true, ssh.Marshal(&length))
	switch {
	case err != nil:
		return c.end(ErrConsoleEnded)
	case !done:
		return fail("send a break to", c.cfg, "", fmt.Errorf("%w: the BMC does not send breaks by SSH", trivet.ErrInvalid))
	}
	return nil
}

// limit ends the session unless the returned timer is stopped in time.
func (c *sshConsole) limit() *time.Timer {
	return time.AfterFunc(sshWrite, func() {
		c.end(fmt.Errorf("%w: the BMC takes no input for %s", trivet.ErrUnavailable, sshWrite))
	})
}

// Close implements [Console].
func (c *sshConsole) Close() {
	c.end(io.EOF)
	c.kept.Wait()
}
