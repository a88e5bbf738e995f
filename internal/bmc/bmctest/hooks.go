package bmctest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/trivet-project/trivet/internal/bmc"
)

// hooks answers ipmi_sim's requests about its machine on a unix socket, one line each.
type hooks struct {
	listener net.Listener
	done     chan struct{}
	machine  Machine
	boot     string // as ipmi_sim names it
}

// hookTimeout bounds one request on the socket, without the machine's own time.
const hookTimeout = 10 * time.Second

func serveHooks(path string, m Machine) (*hooks, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	h := &hooks{listener: l, done: make(chan struct{}), machine: m, boot: "none"}
	go func() {
		defer close(h.done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			h.serve(conn)
		}
	}()
	return h, nil
}

func (h *hooks) stop() error {
	err := h.listener.Close()
	<-h.done
	return err
}

func (h *hooks) serve(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(hookTimeout))
	line, err := bufio.NewReader(io.LimitReader(conn, 256)).ReadString('\n')
	if err != nil {
		return
	}
	answer, err := h.answer(strings.TrimSpace(line))
	if err != nil {
		answer = "!" + err.Error()
	}
	conn.SetDeadline(time.Now().Add(hookTimeout))
	fmt.Fprintln(conn, answer)
}

func (h *hooks) answer(line string) (string, error) {
	switch line {
	case "get power":
		if h.machine.Power() == bmc.Off {
			return "power:0", nil
		}
		return "power:1", nil
	case "set power 0":
		return "", h.machine.SetPower(bmc.Off)
	case "set power 1":
		return "", h.machine.SetPower(bmc.On)
	case "get boot":
		return "boot:" + h.boot, nil
	case "set boot pxe", "set boot default", "set boot none":
		return "", h.setBoot(strings.TrimPrefix(line, "set boot "))
	}
	return "", fmt.Errorf("unknown request: %q", line)
}

func (h *hooks) setBoot(boot string) error {
	h.boot = boot
	switch boot {
	case "pxe":
		return h.machine.SetNextBoot(bmc.Network)
	case "default":
		return h.machine.SetNextBoot(bmc.Disk)
	}
	return nil
}
