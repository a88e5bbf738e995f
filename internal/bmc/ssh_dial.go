package bmc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trivet-project/trivet"
)

// sshWrite is how long the BMC may take to accept what is sent. Tests shorten it.
var sshWrite = 10 * time.Second

// sshConn is a connection to a BMC. A write that the BMC does not take ends it.
type sshConn struct {
	net.Conn
	keepalives
}

func (c *sshConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard()
	}
	return n, err
}

func (c *sshConn) Write(p []byte) (int, error) {
	c.SetWriteDeadline(time.Now().Add(sshWrite))
	return c.Conn.Write(p)
}

// dialSSH connects and logs in, until ctx ends. The password is sent to a BMC whose host key is accepted, and to no
// other one. What the BMC sends before that is bounded: its version to some lines, a packet to 256 KiB.
func dialSSH(ctx context.Context, cfg Config, address string) (*sshConn, *ssh.Client, error) {
	keys, err := parseHostKeys(cfg.HostKeys)
	if err != nil {
		return nil, nil, fail(opOpenConsole, cfg, "an admin corrects sshHostKey in spec.data of its secret", err)
	}
	tcp, err := cfg.dialer().DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, nil, explainSSH(ctx, cfg, address, err)
	}
	conn := &sshConn{Conn: tcp}
	stop := context.AfterFunc(ctx, func() { tcp.Close() })
	defer stop()
	c, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User:              cfg.User,
		Auth:              []ssh.AuthMethod{ssh.Password(cfg.Password), ssh.KeyboardInteractive(answers(cfg.Password))},
		HostKeyCallback:   keys.check(cfg.Insecure),
		HostKeyAlgorithms: keys.algorithms(),
	})
	if err != nil {
		return nil, nil, explainSSH(ctx, cfg, address, err)
	}
	return conn, ssh.NewClient(c, channels, requests), nil
}

// answers answers the question for the password, which is not shown when it is typed, once.
func answers(password string) ssh.KeyboardInteractiveChallenge {
	asked := false
	return func(_, _ string, questions []string, echoes []bool) ([]string, error) {
		switch {
		case len(questions) == 0:
			return nil, nil
		case asked || len(questions) > 1 || echoes[0]:
			return nil, errors.New("the BMC asks for more than a password")
		}
		asked = true
		return []string{password}, nil
	}
}

// explainSSH says what an error of the connection means, and what to do.
func explainSSH(ctx context.Context, cfg Config, address string, err error) error {
	var key *hostKeyError
	var algorithms *ssh.AlgorithmNegotiationError
	kind, hint := trivet.ErrUnavailable, "check that the BMC answers SSH at "+address
	switch {
	case errors.Is(err, errAddress):
		return fail(opOpenConsole, cfg, hintAddress, err)
	case errors.As(err, &key):
		return fail(opOpenConsole, cfg, key.hint(), fmt.Errorf("%w: %w", kind, key))
	case ended(ctx) != nil:
		err = fmt.Errorf("SSH to %s did not answer in time: %w", address, ended(ctx))
		return fail(opOpenConsole, cfg, hint, fmt.Errorf("%w: %w", kind, err))
	case errors.As(err, &algorithms) && cfg.HostKeys != "":
		hint = "its host keys may be of other types than those in sshHostKey of its secret; else update its firmware"
	case errors.As(err, &algorithms):
		hint = "update the BMC's firmware: it offers no algorithms of SSH that are secure"
	case strings.Contains(err.Error(), "unable to authenticate"):
		kind, hint = trivet.ErrUnauthenticated,
			"check user and password in its secret, and that the BMC permits the user SSH by password"
	}
	return fail(opOpenConsole, cfg, hint, fmt.Errorf("%w: SSH to %s: %s", kind, address, printable(err.Error())))
}
