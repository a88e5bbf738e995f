package notify

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/http/httptest"
	"net/mail"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/trivet-project/trivet"
)

// smtpd is a real mail server, which is python3-aiosmtpd of Debian.
type smtpd struct {
	*testing.T
	address string
	ca      string
	lines   *bufio.Reader
}

// accepted is a mail as the server got it.
type accepted struct {
	From, User, Data string
	To               []string
	TLS              bool
}

// startMail starts a server in a mode: starttls, implicit or plain.
func startMail(t *testing.T, mode string) *smtpd {
	t.Helper()
	// httptest has a certificate for 127.0.0.1
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir, s := t.TempDir(), &smtpd{T: t}
	s.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	cert, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	keyText := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})
	if err := errors.Join(os.WriteFile(cert, []byte(s.ca), 0o600), os.WriteFile(keyFile, keyText, 0o600)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/usr/bin/python3", "testdata/smtpd.py", mode, cert, keyFile)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{s.listen()}, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	s.lines = bufio.NewReader(out)
	if line, err := s.lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the mail server does not start: %q, %v; it needs: apt-get install -y --no-install-recommends "+
			"python3-aiosmtpd", line, err)
	}
	return s
}

// listen returns the socket that the server inherits: a port that is closed for it may be taken by another program.
func (s *smtpd) listen() *os.File {
	s.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		s.Fatal(err)
	}
	defer l.Close()
	f, err := l.File()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { f.Close() })
	s.address = l.Addr().String()
	return f
}

// next returns the next mail that was accepted.
func (s *smtpd) next() (m accepted) {
	s.Helper()
	line, err := s.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		s.Fatal(err)
	}
	return m
}

func (s *smtpd) spec() trivet.Mail {
	return trivet.Mail{Server: s.address, From: "trivet@example.com", To: []string{"a@example.com", "b@example.com"},
		CA: s.ca}
}

func anyAddress(netip.Addr) bool { return true }

func sendMail(t *testing.T, spec trivet.Mail, user, password string, messages ...Message) error {
	t.Helper()
	m, err := NewMail(&spec, user, password, anyAddress)
	if err != nil {
		t.Fatal(err)
	}
	m.implicit = strings.HasPrefix(t.Name(), "TestImplicit")
	n, err := m.Send(t.Context(), messages)
	if want := len(messages); err == nil && n != want || err != nil && n != 0 {
		t.Errorf("delivered %d of %d, %v", n, want, err)
	}
	return err
}

// Several messages are one mail, which a real server accepts over TLS from its user.
func TestMail(t *testing.T) {
	s := startMail(t, "starttls")
	second := testMessage("2")
	second.Data.Machine = &Machine{Name: "m1", State: "quarantined", Addresses: []string{"10.0.0.1"}, BMC: "10.9.0.1"}
	if err := sendMail(t, s.spec(), "trivet", "right", testMessage("1"), second); err != nil {
		t.Fatal(err)
	}
	got := s.next()
	if got.From != "trivet@example.com" || !slices.Equal(got.To, []string{"a@example.com", "b@example.com"}) ||
		got.User != "trivet" || !got.TLS {
		t.Errorf("%+v", got)
	}
	header, body := parseMail(t, []byte(got.Data))
	if header.Get("Subject") != "[trivet] 2 events: Failed: machine/m1 and others" ||
		header.Get("To") != "a@example.com, b@example.com" || header.Get("Auto-Submitted") != "auto-generated" {
		t.Errorf("%v", header)
	}
	for _, want := range []string{"machine/m1  Failed", "ID: 1", "ID: 2", "m1 (quarantined), 10.0.0.1, BMC 10.9.0.1"} {
		if !strings.Contains(body, want) {
			t.Errorf("the body lacks %q:\n%s", want, body)
		}
	}
	if err := sendMail(t, s.spec(), "", "", testMessage("1"), second); err != nil {
		t.Fatal(err)
	}
	again, _ := parseMail(t, []byte(s.next().Data))
	if id := header.Get("Message-ID"); id == "" || id != again.Get("Message-ID") {
		t.Errorf("the same mail has the IDs %s and %s", id, again.Get("Message-ID"))
	}
}

// What the server refuses is the cause, and nothing is sent.
func TestMailIsRefused(t *testing.T) {
	s := startMail(t, "starttls")
	unknown, recipient := s.spec(), s.spec()
	unknown.CA = ""
	recipient.To = append(recipient.To, "unknown@example.com")
	for _, tc := range []struct {
		spec     trivet.Mail
		password string
		want     string
	}{
		{s.spec(), "wrong", `refuses user "trivet"`}, {unknown, "right", "STARTTLS: tls: failed to verify"},
		{recipient, "right", "refuses recipient unknown@example.com: 550"},
	} {
		err := sendMail(t, tc.spec, "trivet", tc.password, testMessage("1"))
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), tc.password) {
			t.Errorf("%v; want %s", err, tc.want)
		}
	}
	m, err := NewMail(new(s.spec()), "trivet", "right", func(a netip.Addr) bool { return a.String() != "127.0.0.1" })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Send(t.Context(), []Message{testMessage("1")}); !errors.Is(err, trivet.ErrForbidden) ||
		!strings.Contains(err.Error(), "spec.addresses") {
		t.Errorf("an address that the secret does not allow: %v", err)
	}
	insecure := unknown
	insecure.Insecure = true
	if err := sendMail(t, insecure, "", "", testMessage("last")); err != nil {
		t.Errorf("a certificate that cannot be verified, where that is permitted: %v", err)
	}
	if _, body := parseMail(t, []byte(s.next().Data)); !strings.Contains(body, "ID: last") {
		t.Errorf("a mail that was refused was sent:\n%s", body)
	}
}

// Without TLS nothing is sent unless the record permits it, and a password never.
func TestMailWithoutTLS(t *testing.T) {
	s := startMail(t, "plain")
	insecure := s.spec()
	insecure.Insecure = true
	for _, tc := range []struct {
		spec trivet.Mail
		user string
	}{{s.spec(), ""}, {s.spec(), "trivet"}, {insecure, "trivet"}} {
		err := sendMail(t, tc.spec, tc.user, "right", testMessage("1"))
		if err == nil || !strings.Contains(err.Error(), "does not offer STARTTLS") {
			t.Errorf("user %q, insecure %t: %v", tc.user, tc.spec.Insecure, err)
		}
	}
	if err := sendMail(t, insecure, "", "", testMessage("last")); err != nil {
		t.Error(err)
	}
	if got := s.next(); got.TLS || !strings.Contains(got.Data, "last") {
		t.Errorf("%+v", got)
	}
}

// At port 465 TLS comes first.
func TestImplicitTLS(t *testing.T) {
	s := startMail(t, "implicit")
	if err := sendMail(t, s.spec(), "trivet", "right", testMessage("1")); err != nil {
		t.Fatal(err)
	}
	if got := s.next(); !got.TLS || got.User != "trivet" {
		t.Errorf("%+v", got)
	}
	for server, want := range map[string]bool{"mail.example.com:465": true, "mail.example.com": false} {
		if m, err := NewMail(&trivet.Mail{Server: server}, "", "", nil); err != nil || m.implicit != want {
			t.Errorf("%s: %v", server, err)
		}
	}
}

// serveOnce serves one connection at the address that it returns.
func serveOnce(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			defer c.Close()
			serve(c)
		}
	}()
	return l.Addr().String()
}

// A server that is down, hangs or sends without an end is given up. Each of these is a listener of the test, as no
// mail server does so.
func TestMailServerThatFails(t *testing.T) {
	endless := func(c net.Conn) {
		for {
			if _, err := c.Write([]byte(strings.Repeat("2", 64<<10))); err != nil {
				return
			}
		}
	}
	silent := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for name, tc := range map[string]struct {
		serve func(net.Conn)
		want  string
	}{"down": {nil, "refused"}, "silent": {silent, "did not answer"}, "endless": {endless, "sent too much"}} {
		address := down
		if tc.serve != nil {
			address = serveOnce(t, tc.serve)
		}
		m, err := NewMail(&trivet.Mail{Server: address, From: "a@b", To: []string{"c@d"}}, "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if name == "silent" {
			m.timeout = 200 * time.Millisecond
		}
		if _, err := m.Send(t.Context(), []Message{testMessage("1")}); err == nil ||
			!strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// mailHeaders are those that a mail has.
var mailHeaders = []string{"Auto-Submitted", "Content-Transfer-Encoding", "Content-Type", "Date", "From", "Message-Id",
	"Mime-Version", "Subject", "To"}

// parseMail returns the header and the decoded body of a mail, which has the headers of mailHeaders only.
func parseMail(t *testing.T, text []byte) (mail.Header, string) {
	t.Helper()
	for line := range strings.SplitSeq(string(text), "\r\n") {
		if len(line) > 998 || strings.ContainsAny(line, "\r\n") {
			t.Fatalf("a line of %d bytes: %.80q", len(line), line)
		}
	}
	m, err := mail.ReadMessage(strings.NewReader(string(text)))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for name, values := range m.Header {
		if !slices.Contains(mailHeaders, name) || len(values) != 1 {
			t.Fatalf("header %s: %q", name, values)
		}
	}
	if len(m.Header) != len(mailHeaders) {
		t.Fatalf("the headers are %v", m.Header)
	}
	body, err := io.ReadAll(quotedprintable.NewReader(m.Body))
	if err != nil {
		t.Fatal(err)
	}
	return m.Header, string(body)
}

// FuzzMailText: whatever the fields of a message have, it adds no header, ends no header early, and puts no control
// character or line of its own into the body.
func FuzzMailText(f *testing.F) {
	for _, text := range []string{
		"disk", "x\r\nBcc: evil@example.com", "\r\n\r\n<html>", "\x1b[2J", "\r\n.\r\nQUIT", "\u202e",
		"ü\xff", strings.Repeat("x", 5000), "a\nb", "\u2028", "."} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		machine := Machine{Name: text, State: text, Rack: text, Addresses: []string{text, text}, BMC: text}
		message := Message{ID: text, Source: text, Type: text, Subject: text, Data: Data{Reason: text, Message: text,
			Step: text, Workflow: text, Head: text, Hint: text, Machine: &machine,
			Provision: &Provision{Name: text, State: text, Machine: &machine, Failed: []Machine{machine}}}}
		m := &Mail{spec: trivet.Mail{From: "trivet@example.com", To: []string{"a@example.com", "b@example.com"}}}
		header, body := parseMail(t, m.text([]Message{message}, time.Now()))
		if to, err := header.AddressList("To"); err != nil || len(to) != 2 {
			t.Fatalf("To: %v, %v", to, err)
		}
		lines, want := strings.Split(body, "\r\n"), 9
		if text == "" { // there is no hint
			want--
		}
		if len(lines) != want {
			t.Fatalf("%d lines: %q", len(lines), lines)
		}
		for _, line := range lines {
			if i := strings.IndexFunc(line, unicode.IsControl); i >= 0 {
				t.Fatalf("a control character in %q", line)
			}
		}
	})
}

// All recipients that a record may have fit into the header.
func TestMailToMany(t *testing.T) {
	m := &Mail{spec: trivet.Mail{From: "trivet@example.com"}}
	for i := range 16 {
		m.spec.To = append(m.spec.To, fmt.Sprint(i, strings.Repeat("x", 230), "@example.com"))
	}
	header, _ := parseMail(t, m.text([]Message{testMessage("1")}, time.Now()))
	if to, err := header.AddressList("To"); err != nil || len(to) != 16 || to[15].Address != m.spec.To[15] {
		t.Errorf("%v, %v", to, err)
	}
}
