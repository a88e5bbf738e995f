package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/smtp"
	"syscall"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/limit"
)

// Bounds of one mail.
const (
	mailTimeout = 30 * time.Second
	maxReplies  = 256 << 10 // bytes that are read of a server, with its certificates
	// portTLS is the port of servers that begin with TLS (RFC 8314). Others are asked for it by STARTTLS.
	portTLS = "465"
)

// Mail sends messages by e-mail (RFC 5321): all of one call in one mail.
type Mail struct {
	spec           trivet.Mail
	user, password string // empty: none
	allows         func(netip.Addr) bool
	tls            *tls.Config
	implicit       bool // TLS comes first
	timeout        time.Duration
}

// NewMail returns the sender for a mail server. With a user, the password is sent to the addresses that allows accepts
// only, and over verified TLS only.
func NewMail(spec *trivet.Mail, user, password string, allows func(netip.Addr) bool) (*Mail, error) {
	config, err := tlsConfig(spec.CA, "spec.mail.ca")
	if err != nil {
		return nil, err
	}
	host, port := spec.HostPort()
	config.ServerName, config.InsecureSkipVerify = host, spec.Insecure && user == ""
	return &Mail{spec: *spec, user: user, password: password, allows: allows, tls: config, implicit: port == portTLS,
		timeout: mailTimeout}, nil
}

// Close implements [Sender]. No connection stays open.
func (m *Mail) Close() {}

// Send implements [Sender].
func (m *Mail) Send(ctx context.Context, messages []Message) (delivered int, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	conn, err := m.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var timeout net.Error
	switch err := m.session(conn, messages); {
	case err == nil:
		return len(messages), nil
	case conn.from.N == 0:
		return 0, errors.New("the mail server sent too much")
	case ctx.Err() != nil, errors.As(err, &timeout) && timeout.Timeout():
		return 0, fmt.Errorf("the mail server did not answer within %s", m.timeout)
	default:
		return 0, err
	}
}

func (m *Mail) dial(ctx context.Context) (*limitedConn, error) {
	host, port := m.spec.HostPort()
	dialer := &net.Dialer{Timeout: requestTimeout, ControlContext: m.checkAddress}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	end, _ := ctx.Deadline()
	return &limitedConn{conn, io.LimitedReader{R: conn, N: maxReplies}}, conn.SetDeadline(end)
}

// session sends messages by a connection.
func (m *Mail) session(conn net.Conn, messages []Message) error {
	local := conn.LocalAddr()
	if m.implicit {
		conn = tls.Client(conn, m.tls)
	}
	c, err := smtp.NewClient(conn, m.tls.ServerName)
	if err != nil {
		return err
	}
	if err := m.begin(c, local); err != nil {
		return err
	}
	if err := m.send(c, messages); err != nil {
		return err
	}
	_ = c.Quit() // the mail is accepted
	return nil
}

// begin sends EHLO, and then starts TLS and logs in.
func (m *Mail) begin(c *smtp.Client, local net.Addr) error {
	if err := c.Hello(addressLiteral(local)); err != nil {
		return err
	}
	_, encrypted := c.TLSConnectionState()
	if offered, _ := c.Extension("STARTTLS"); offered && !encrypted {
		if err := c.StartTLS(m.tls); err != nil {
			return fmt.Errorf("STARTTLS: %w", err)
		}
		encrypted = true
	}
	switch {
	case !encrypted && (!m.spec.Insecure || m.user != ""):
		return errors.New("the mail server does not offer STARTTLS: use one that does, or port 465, or, without a " +
			"password, set spec.mail.insecure")
	case m.user == "":
		return nil
	}
	if offered, _ := c.Extension("AUTH"); !offered {
		return errors.New("the mail server offers no authentication: remove spec.mail.secret, or use its port for clients")
	}
	if err := c.Auth(smtp.PlainAuth("", m.user, m.password, m.tls.ServerName)); err != nil {
		return fmt.Errorf("the mail server refuses user %q: %w", m.user, err)
	}
	return nil
}

func (m *Mail) send(c *smtp.Client, messages []Message) error {
	if err := c.Mail(m.spec.From); err != nil {
		return fmt.Errorf("the mail server refuses sender %s: %w", m.spec.From, err)
	}
	for _, to := range m.spec.To {
		if err := c.Rcpt(to); err != nil {
			return fmt.Errorf("the mail server refuses recipient %s: %w", to, err)
		}
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write(m.text(messages, time.Now())); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("the mail server refuses the mail: %w", err)
	}
	return nil
}

// checkAddress refuses addresses where no server can be, and those that the password may not be sent to.
func (m *Mail) checkAddress(ctx context.Context, network, address string, c syscall.RawConn) error {
	if err := limit.CheckOutbound(ctx, network, address, c); err != nil || m.user == "" {
		return err
	}
	to, err := netip.ParseAddrPort(address)
	if err == nil && !m.allows(to.Addr().Unmap()) {
		err = fmt.Errorf("%w: %s is not among the addresses that the secret may be sent to: an admin adds it to its "+
			"spec.addresses", trivet.ErrForbidden, to.Addr())
	}
	return err
}

// addressLiteral is how a host without a name introduces itself (RFC 5321, 4.1.3).
func addressLiteral(local net.Addr) string {
	to, err := netip.ParseAddrPort(local.String())
	switch {
	case err != nil:
		return "localhost"
	case to.Addr().Unmap().Is4():
		return "[" + to.Addr().Unmap().String() + "]"
	}
	return "[IPv6:" + to.Addr().WithZone("").String() + "]"
}

// limitedConn is a connection of which a bounded number of bytes is read.
type limitedConn struct {
	net.Conn
	from io.LimitedReader
}

func (c *limitedConn) Read(p []byte) (int, error) { return c.from.Read(p) }
