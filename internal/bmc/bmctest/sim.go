package bmctest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/bmc"
)

//go:embed chassis.pl
var chassisScript []byte

// stopTimeout is how long ipmi_sim may take to exit.
const stopTimeout = 5 * time.Second

// startAttempts is how often ipmi_sim is started where another program may take the free port before it does.
const startAttempts = 5

// IPMI is a running ipmi_sim for a machine. It ends with its parent process, however that ends.
type IPMI struct {
	Config bmc.Config // how to reach it

	dir    string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	hooks  *hooks
	output tail
	done   chan struct{} // closed when all output was read
}

// Options are where an ipmi_sim runs.
type Options struct {
	Address  string // IP address to listen on; default 127.0.0.1
	Port     int    // UDP; 0: a free one
	Password string // at most 20 letters and digits; empty: a random one
	Serial   string // host:port of the TCP server that is the machine's serial line; empty: there is none
	// Events are the entries of the event log: record type and 13 bytes, of which the BMC sets the time. nil: no log.
	Events [][14]byte
	Wrap   []string // put before the command, such as "ip", "netns", "exec", NAME
}

// Sim runs ipmi_sim on a free port of 127.0.0.1 for one test and returns the Config to reach it.
func Sim(t TB, m Machine) bmc.Config {
	t.Helper()
	sim, err := StartIPMI(m, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Stop(); err != nil {
			t.Fatal(err)
		}
	})
	return sim.Config
}

// StartIPMI runs ipmi_sim until Stop. When it returns, the BMC answers.
func StartIPMI(m Machine, opts Options) (*IPMI, error) {
	if _, err := exec.LookPath("ipmi_sim"); err != nil {
		return nil, errors.New("ipmi_sim is missing: apt-get install openipmi")
	}
	if opts.Address == "" {
		opts.Address = "127.0.0.1"
	}
	if opts.Password == "" {
		opts.Password = rand.Text()[:16]
	}
	if opts.Port != 0 {
		return startIPMI(m, opts)
	}
	for attempt := 1; ; attempt++ {
		port, err := freePort(opts.Address)
		if err != nil {
			return nil, fmt.Errorf("start ipmi_sim: %w", err)
		}
		opts.Port = port
		s, err := startIPMI(m, opts)
		if err == nil || attempt == startAttempts {
			return s, err
		}
	}
}

func startIPMI(m Machine, opts Options) (*IPMI, error) {
	dir, err := os.MkdirTemp("", "bmc-") // short: the path of a unix socket has at most 107 bytes
	if err != nil {
		return nil, fmt.Errorf("start ipmi_sim: %w", err)
	}
	s := &IPMI{dir: dir, done: make(chan struct{}), Config: bmc.Config{
		Protocol: bmc.IPMI,
		Address:  fmt.Sprintf("%s:%d", opts.Address, opts.Port),
		User:     "trivet",
		Password: opts.Password,
		Allows:   func(netip.Addr) bool { return true },
	}}
	if err := s.start(m, opts); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start ipmi_sim: %w", err)
	}
	return s, nil
}

func (s *IPMI) start(m Machine, opts Options) error {
	if err := s.writeFiles(opts); err != nil {
		return err
	}
	var err error
	if s.hooks, err = serveHooks(s.path("hooks"), m); err != nil {
		return err
	}
	argv := append(append([]string{}, opts.Wrap...),
		"ipmi_sim", "-c", s.path("lan.conf"), "-f", s.path("sim.emu"), "-s", s.path("state"))
	s.cmd = exec.Command(argv[0], argv[1:]...)
	stdout, err1 := s.cmd.StdoutPipe()
	stdin, err2 := s.cmd.StdinPipe() // ipmi_sim exits when it is closed, so that it does not outlive this process
	s.cmd.Stderr = &s.output
	s.stdin = stdin
	if err := errors.Join(err1, err2, s.cmd.Start()); err != nil {
		return errors.Join(err, s.hooks.stop())
	}
	ready := make(chan struct{})
	go s.read(stdout, ready)
	select {
	case <-ready:
		return nil
	case <-s.done:
		s.stdin.Close()
		return errors.Join(fmt.Errorf("it exited: %v: %s", s.cmd.Wait(), s.output.String()), s.hooks.stop())
	}
}

// read keeps the output, and closes ready at the prompt, which is printed after the port is bound.
func (s *IPMI) read(stdout io.Reader, ready chan struct{}) {
	defer close(s.done)
	r := bufio.NewReader(io.TeeReader(stdout, &s.output))
	for {
		b, err := r.ReadByte()
		if err != nil {
			return
		}
		if b == '>' && ready != nil {
			close(ready)
			ready = nil
		}
	}
}

// Stop ends ipmi_sim and waits until it has exited.
func (s *IPMI) Stop() error {
	defer os.RemoveAll(s.dir)
	s.stdin.Close()
	kill := time.AfterFunc(stopTimeout, func() { s.cmd.Process.Kill() })
	<-s.done
	err := s.cmd.Wait()
	kill.Stop()
	if err != nil {
		err = fmt.Errorf("stop ipmi_sim: %w: %s", err, s.output.String())
	}
	return errors.Join(err, s.hooks.stop())
}

func (s *IPMI) path(name string) string { return filepath.Join(s.dir, name) }

func (s *IPMI) writeFiles(opts Options) error {
	serial := ""
	if opts.Serial != "" {
		serial = fmt.Sprintf("sol \"tcp:%s\" 115200\n", opts.Serial)
	}
	conf := fmt.Sprintf(`name "bmc"
set_working_mc 0x20
startlan 1
  addr %s %d
  priv_limit admin
  allowed_auths_callback md5
  allowed_auths_user md5
  allowed_auths_operator md5
  allowed_auths_admin md5
  guid a123456789abcdefa123456789abcdef
endlan
chassis_control "perl %s %s"
%suser 2 true "%s" "%s" operator 60 md5
`, opts.Address, opts.Port, s.path("chassis.pl"), s.path("hooks"), serial, s.Config.User,
		s.Config.Password)
	emu := "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n" + selCommands(opts.Events) +
		"mc_enable 0x20\n"
	return errors.Join(
		os.WriteFile(s.path("lan.conf"), []byte(conf), 0o600),
		os.WriteFile(s.path("sim.emu"), []byte(emu), 0o600),
		os.WriteFile(s.path("chassis.pl"), chassisScript, 0o600),
		os.Mkdir(s.path("state"), 0o700),
	)
}

// selCommands are the commands of ipmi_sim for the event log.
func selCommands(events [][14]byte) string {
	if events == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sel_enable 0x20 %d 0x0a\n", max(len(events), 1))
	for _, e := range events {
		fmt.Fprintf(&b, "sel_add 0x20 % #x\n", e)
	}
	return b.String()
}

func freePort(address string) (int, error) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address)})
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).Port, nil
}

// tail keeps the beginning of a program's output for errors, up to a limit.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buf.Len() < 16<<10 {
		t.buf.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
