package bmc_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// A host key is accepted where the secret has it, and any one only where that has none and is insecure. The error says
// which key the BMC has and what to write.
func TestSSHHostKey(t *testing.T) {
	t.Parallel()
	line := bmctest.NewLine(t)
	cfg, sshd := bmctest.RedfishWithLine(t, bmctest.NewBox(), line, true)
	address := fmt.Sprintf("127.0.0.1:%d", sshd.Port)
	other := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(newSigner(t).PublicKey())))
	for name, tc := range map[string]struct {
		keys     string
		insecure bool
		want     error
		says     string
	}{
		"the key":                 {sshd.HostKey + " bmc 7", false, nil, ""},
		"the key among others":    {"# site\n\n" + other + "\n" + sshd.HostKey, true, nil, ""},
		"no key":                  {"", false, trivet.ErrUnavailable, sshd.HostKey},
		"no key, insecure":        {"", true, nil, ""},
		"another key":             {other, false, trivet.ErrUnavailable, sshd.HostKey},
		"another key, insecure":   {other, true, trivet.ErrUnavailable, sshd.HostKey},
		"not a key":               {"\nssh-ed25519 nothing", true, trivet.ErrInvalid, "line 2"},
		"with a host":             {"10.0.9.7 " + sshd.HostKey, true, trivet.ErrInvalid, "without a host"},
		"of an authority, no key": {"@cert-authority * " + sshd.HostKey, true, trivet.ErrInvalid, "line 1"},
	} {
		cfg := cfg
		cfg.HostKeys, cfg.Insecure = tc.keys, tc.insecure
		c, err := bmc.DialSSH(t.Context(), cfg, address, bmctest.EntryCommand)
		if err == nil {
			c.Close()
		}
		var e *trivet.Error
		if !errors.Is(err, tc.want) || err != nil && (!errors.As(err, &e) || !strings.Contains(e.Error()+e.Hint, tc.says)) {
			t.Errorf("%s: %v; want %v with %q", name, err, tc.want, tc.says)
		}
	}
	cfg.HostKeys, cfg.Allows = sshd.HostKey, func(netip.Addr) bool { return false }
	if _, err := bmc.DialSSH(t.Context(), cfg, address, ""); !errors.Is(err, trivet.ErrForbidden) {
		t.Errorf("an address that the secret does not allow: %v", err)
	}
}

// What a Redfish service says of a console that it has not, or that cannot be used, is refused with the reason.
func TestRedfishConsoleRefused(t *testing.T) {
	t.Parallel()
	disabled := bmctest.SSHConsole(22, "")
	disabled["SSH"].(map[string]any)["ServiceEnabled"] = false
	unnamed := bmctest.SSHConsole(22, "x")
	unnamed["SSH"].(map[string]any)["ConsoleEntryCommand"] = nil
	for name, tc := range map[string]struct {
		system, manager any
		want            error
		says            string
	}{
		"none":                       {nil, nil, bmc.ErrNoConsole, "no SerialConsole.SSH"},
		"IPMI only":                  {map[string]any{"IPMI": map[string]any{"Port": 623}}, nil, bmc.ErrNoConsole, "SSH"},
		"of the manager":             {nil, map[string]any{"ConnectTypesSupported": []string{"SSH"}}, bmc.ErrNoConsole, "port"},
		"of a manager of no use":     {nil, "x", bmc.ErrNoConsole, "no SerialConsole.SSH"},
		"disabled":                   {disabled, nil, bmc.ErrNoConsole, "disabled"},
		"a command line only":        {unnamed, nil, bmc.ErrNoConsole, "its own command line"},
		"a port that is none":        {bmctest.SSHConsole(65536, ""), nil, trivet.ErrInvalid, "65536"},
		"two commands":               {bmctest.SSHConsole(22, "a\nb"), nil, trivet.ErrInvalid, "command"},
		"a command that is too long": {bmctest.SSHConsole(22, strings.Repeat("x", 257)), nil, trivet.ErrInvalid, "command"},
		"another type":               {map[string]any{"SSH": 7}, nil, trivet.ErrInvalid, "not valid Redfish"},
		"a port that is closed":      {bmctest.SSHConsole(1, ""), nil, trivet.ErrUnavailable, "127.0.0.1:1"},
	} {
		service := bmctest.NewService(bmctest.NewBox())
		service.SerialConsole, service.ManagerConsole = tc.system, tc.manager
		cfg := bmctest.Serve(t, service)
		if _, err := bmc.OpenConsole(t.Context(), cfg, false); !errors.Is(err, tc.want) ||
			!strings.Contains(err.Error(), tc.says) || strings.Contains(err.Error(), cfg.Password) {
			t.Errorf("%s: %v; want %v with %q", name, err, tc.want, tc.says)
		}
		if service.Sessions() != 0 {
			t.Errorf("%s: the session of Redfish is left open", name)
		}
	}
}

// A password that SSH refuses is an error of its own, and is not shown.
func TestSSHPasswordRefused(t *testing.T) {
	t.Parallel()
	cfg, sshd := bmctest.RedfishWithLine(t, bmctest.NewBox(), bmctest.NewLine(t), false)
	cfg.Password = "hunter2-hunter2"
	_, err := bmc.DialSSH(t.Context(), cfg, fmt.Sprintf("127.0.0.1:%d", sshd.Port), "")
	if !errors.Is(err, trivet.ErrUnauthenticated) || strings.Contains(err.Error(), cfg.Password) {
		t.Error(err)
	}
}

func newSigner(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// accept runs serve for each connection to a free port of 127.0.0.1, and returns the port's address and how to log in.
func accept(t *testing.T, serve func(net.Conn)) (bmc.Config, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return bmc.Config{Protocol: bmc.Redfish, Address: "127.0.0.1", User: "u", Password: "hunter2-hunter2", Insecure: true,
		Allows: netip.Addr.IsLoopback}, l.Addr().String()
}

// A service that never lets a client in costs it a bounded time and nothing else, and does not get the password unless
// it asks for it as a service does.
func TestSSHHostileHandshakes(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	handshake := func(change func(*ssh.ServerConfig)) func(net.Conn) {
		cfg := &ssh.ServerConfig{}
		cfg.AddHostKey(newSigner(t))
		change(cfg)
		return func(conn net.Conn) { ssh.NewServerConn(conn, cfg) }
	}
	questions := func(rounds int, text string, echo bool) func(*ssh.ServerConfig) {
		return func(cfg *ssh.ServerConfig) {
			cfg.KeyboardInteractiveCallback = func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (
				*ssh.Permissions, error) {
				for range rounds {
					var texts []string
					var echoes []bool
					if text != "" {
						texts, echoes = []string{text}, []bool{echo}
					}
					got, err := ask("", text, texts, echoes)
					if err != nil {
						return nil, err
					}
					if len(got) > 0 {
						asked.Add(1)
					}
				}
				return nil, errors.New("no")
			}
		}
	}
	ends, hangs := time.Minute, time.Second // of the service, or of the client's context
	for name, tc := range map[string]struct {
		serve   func(net.Conn)
		timeout time.Duration
		asked   int32
	}{
		"says nothing":  {func(conn net.Conn) { io.Copy(io.Discard, conn) }, hangs, 0},
		"closes":        {func(net.Conn) {}, ends, 0},
		"endless lines": {func(conn net.Conn) { io.Copy(conn, &repeated{text: "hello\n"}) }, ends, 0},
		"endless line":  {func(conn net.Conn) { io.Copy(conn, &repeated{text: "SSH-2.0-x"}) }, ends, 0},
		"endless packet": {func(conn net.Conn) {
			io.WriteString(conn, "SSH-2.0-x\r\n")
			io.Copy(conn, &repeated{text: "\x00\xff"})
		}, ends, 0},
		"endless rounds": {handshake(questions(1<<30, "", false)), hangs, 0},
		"asks twice":     {handshake(questions(2, "Password: ", false)), ends, 1},
		"shows answers":  {handshake(questions(1, "Name: ", true)), ends, 0},
		"long banner": {handshake(func(cfg *ssh.ServerConfig) {
			cfg.BannerCallback = func(ssh.ConnMetadata) string { return strings.Repeat("x", 200<<10) }
			questions(1, "Password: ", false)(cfg)
		}), ends, 1},
	} {
		asked.Store(0)
		cfg, address := accept(t, tc.serve)
		ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
		_, err := bmc.DialSSH(ctx, cfg, address, "")
		if err == nil || len(err.Error()) > 1000 || strings.Contains(err.Error(), cfg.Password) {
			t.Errorf("%s: %v", name, err)
		}
		if n := asked.Load(); n != tc.asked {
			t.Errorf("%s: the password was sent %d times; want %d", name, n, tc.asked)
		}
		cancel()
	}
}

// repeated is a text without end.
type repeated struct{ text string }

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], r.text)
	}
	return n, nil
}

// served runs an SSH service that accepts the password; use is called with each session, whose requests it answers.
func served(t *testing.T, answerGlobal bool, use func(ssh.Channel)) (bmc.Config, string) {
	t.Helper()
	var cfg bmc.Config
	server := &ssh.ServerConfig{PasswordCallback: func(_ ssh.ConnMetadata, password []byte) (*ssh.Permissions, error) {
		if string(password) != cfg.Password {
			return nil, errors.New("no")
		}
		return nil, nil
	}}
	server.AddHostKey(newSigner(t))
	cfg, address := accept(t, func(conn net.Conn) {
		_, channels, requests, err := ssh.NewServerConn(conn, server)
		if err != nil {
			return
		}
		if answerGlobal {
			go ssh.DiscardRequests(requests)
		}
		for next := range channels {
			channel, requests, err := next.Accept()
			if err != nil {
				return
			}
			go func() {
				for r := range requests {
					r.Reply(r.Type == "shell", nil)
					if r.Type == "shell" {
						go use(channel)
					}
				}
			}()
		}
	})
	return cfg, address
}

func dialSSH(t *testing.T, cfg bmc.Config, address string) bmc.Console {
	t.Helper()
	c, err := bmc.DialSSH(t.Context(), cfg, address, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A service that sends without end is stopped by the session's window while it is not read.
func TestSSHFloodIsBounded(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	cfg, address := served(t, true, func(c ssh.Channel) {
		for buf := make([]byte, 32<<10); ; sent.Add(int64(len(buf))) {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	})
	c := dialSSH(t, cfg, address)
	const most = 4 << 20 // a flood that nothing stops exceeds it, however slow it is
	for before := int64(-1); before != sent.Load() && before <= most; time.Sleep(time.Second) {
		before = sent.Load()
	}
	if n := sent.Load(); n > most {
		t.Errorf("%d bytes were taken", n)
	}
	if _, err := io.CopyN(io.Discard, c, 8<<20); err != nil {
		t.Errorf("what is read at last: %v", err)
	}
}

// A service that takes no input ends the console, in a bounded time.
func TestSSHInputIsBounded(t *testing.T) {
	t.Parallel()
	cfg, address := served(t, true, func(ssh.Channel) {})
	c := dialSSH(t, cfg, address)
	_, err := c.Write(make([]byte, 8<<20))
	if !errors.Is(err, trivet.ErrUnavailable) || !strings.Contains(err.Error(), "no input") {
		t.Error(err)
	}
	if err := c.Break(); err == nil {
		t.Error("a break after the end: no error")
	}
}

// A service that answers no keepalive is lost, and one that does may be silent otherwise.
func TestSSHKeepalive(t *testing.T) {
	t.Parallel()
	cfg, address := served(t, false, func(ssh.Channel) {})
	c := dialSSH(t, cfg, address)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, trivet.ErrUnavailable) ||
		!strings.Contains(err.Error(), "no answer") {
		t.Errorf("a service that answers nothing: %v", err)
	}
	cfg, address = served(t, true, func(c ssh.Channel) {
		time.Sleep(2 * time.Second)
		io.WriteString(c, "up")
	})
	c = dialSSH(t, cfg, address)
	if got := read(t, c, 2); got != "up" {
		t.Errorf("after a silence: %q", got)
	}
	if err := c.Break(); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a break that the service does not know: %v", err)
	}
}

// Keys that are accepted are those of the text, one a line.
func FuzzHostKeys(f *testing.F) {
	f.Add("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFcS5vmRrtvtCiYb8hSZ4SkZJW3sc1Xb0KXm0iG0Bz9P bmc\n# x\n")
	f.Add("command=\"x\" ssh-ed25519 AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := bmc.ParseHostKeys(text)
		if n > strings.Count(text, "\n")+1 || err != nil && (n != 0 || !errors.Is(err, trivet.ErrInvalid)) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	})
}
