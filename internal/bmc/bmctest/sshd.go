package bmctest

import (
	"crypto/ed25519"
	"crypto/rand"
	_ "embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet/internal/bmc"
)

// sshdScript runs sshd with files of its own instead of the computer's.
//
//go:embed sshd.sh
var sshdScript string

// EntryCommand is the command that enters the console of an sshd that is shared with the BMC's command line.
const EntryCommand = "console com2"

// sshdWait is how long sshd may take to start, and to exit.
const sshdWait = 20 * time.Second

// SSHD is a running sshd of Debian that has the serial line of a machine. It ends with its parent process, however that
// ends.
type SSHD struct {
	Port    int
	HostKey string // as in authorized_keys

	dir      string
	reserved *os.File // a socket that keeps the port
	cmd      *exec.Cmd
	stdin    io.WriteCloser
	output   tail
}

// StartSSHD runs sshd on a free port of 127.0.0.1 until Stop, with one user who logs in by password. A session has the
// line: the address of a TCP server. With shared it has a command line instead, that of the BMC, unless it runs
// [EntryCommand].
func StartSSHD(user, password, line string, shared bool) (*SSHD, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("sshd with a user of its own needs root")
	}
	dir, err := os.MkdirTemp("", "sshd-")
	if err != nil {
		return nil, err
	}
	s := &SSHD{dir: dir}
	if s.Port, s.reserved, err = reservePort(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := s.start(user, password, line, shared); err != nil {
		s.release()
		return nil, fmt.Errorf("start sshd (apt-get install openssh-server): %w: %s", err, s.output.String())
	}
	return s, nil
}

// reservePort binds a free port of 127.0.0.1 without a listener. While it is bound the kernel gives it to no program
// that needs a free one, and sshd can listen on it, as both set SO_REUSEADDR.
func reservePort() (port int, socket *os.File, err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, err
	}
	socket = os.NewFile(uintptr(fd), "reserved port")
	err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	name, errName := unix.Getsockname(fd)
	if err = errors.Join(err, errName); err != nil {
		return 0, nil, errors.Join(err, socket.Close())
	}
	return name.(*unix.SockaddrInet4).Port, socket, nil
}

// release gives back what sshd had. It may be called again.
func (s *SSHD) release() {
	s.reserved.Close()
	os.RemoveAll(s.dir)
}

func (s *SSHD) start(user, password, line string, shared bool) error {
	var err error
	if err := s.writeFiles(line, shared); err != nil {
		return err
	}
	// Mounts and processes are in namespaces of their own, which end with the script: when its standard input does.
	s.cmd = exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-eu", "-c", sshdScript, "sh",
		s.dir, user)
	s.cmd.Stdout, s.cmd.Stderr = &s.output, &s.output
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := s.cmd.Start(); err != nil {
		return err
	}
	fmt.Fprintln(s.stdin, password)
	for late := time.Now().Add(sshdWait); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(late) {
			return errors.Join(err, s.end())
		}
	}
}

func (s *SSHD) writeFiles(line string, shared bool) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err1 := ssh.MarshalPrivateKey(private, "")
	key, err2 := ssh.NewPublicKey(public)
	host, port, err3 := net.SplitHostPort(line)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	s.HostKey = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
	console := fmt.Sprintf("stty raw -echo; exec 3<>/dev/tcp/%s/%s; cat <&0 >&3 & cat <&3", host, port)
	if shared {
		console = fmt.Sprintf(`if [ "$SSH_ORIGINAL_COMMAND" != "%s" ]; then echo "racadm>>"; exec cat; fi; %s`,
			EntryCommand, console)
	}
	conf := fmt.Sprintf("Port %d\nListenAddress 127.0.0.1\nHostKey %s\nUsePAM no\nPidFile none\nPrintMotd no\n"+
		"PrintLastLog no\nKbdInteractiveAuthentication no\nPubkeyAuthentication no\nMaxStartups 100\n"+
		"ForceCommand exec bash -c '%s'\n", s.Port, filepath.Join(s.dir, "key"), console)
	return errors.Join(
		os.WriteFile(filepath.Join(s.dir, "key"), pem.EncodeToMemory(block), 0o600),
		os.WriteFile(filepath.Join(s.dir, "sshd_config"), []byte(conf), 0o600),
	)
}

// Stop ends sshd with its sessions.
func (s *SSHD) Stop() error {
	defer s.release()
	if err := s.end(); err != nil {
		return fmt.Errorf("stop sshd: %w: %s", err, s.output.String())
	}
	return nil
}

func (s *SSHD) end() error {
	s.stdin.Close()
	kill := time.AfterFunc(sshdWait, func() { s.cmd.Process.Kill() })
	defer kill.Stop()
	return s.cmd.Wait()
}

// SSHConsole is the SerialConsole of a system (DSP0268, ComputerSystem 1.13) with the console at a port; command is
// empty unless SSH is shared with the BMC's command line.
func SSHConsole(port int, command string) map[string]any {
	return map[string]any{"MaxConcurrentSessions": 1, "SSH": map[string]any{"ServiceEnabled": true, "Port": port,
		"SharedWithManagerCLI": command != "", "ConsoleEntryCommand": command, "HotKeySequenceDisplay": "^\\"}}
}

// RedfishWithLine runs a simulated Redfish service whose system has a console by a real sshd, for one test.
func RedfishWithLine(t TB, m Machine, line *Line, shared bool) (bmc.Config, *SSHD) {
	t.Helper()
	service := NewService(m)
	sshd, err := StartSSHD(service.User, service.Password, line.Address(), shared)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sshd.Stop() }) // some tests stop it before
	command := ""
	if shared {
		command = EntryCommand
	}
	service.SerialConsole = SSHConsole(sshd.Port, command)
	return Serve(t, service), sshd
}
