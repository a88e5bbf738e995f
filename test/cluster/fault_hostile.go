package cluster

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// hostileEnv names the environment variable that makes a process a hostile client. It holds the client's address and
// the addresses of the heads, with spaces between.
const hostileEnv = "TRIVET_CLUSTER_TEST_HOSTILE"

// isHostile reports whether this process is a hostile client, which then calls runHostile.
func isHostile() bool { return os.Getenv(hostileEnv) != "" }

const hostilePort = "hostile"

var hostileAddress = netip.MustParseAddr("10.99.2.1")

// Sizes of the attack, for each head.
const (
	unreadBodies    = 500  // connections to the API, each with the begin of a request of 1 MiB
	idleConnections = 1200 // to the boot server
	forgers         = 4    // that lease addresses, each for a MAC after the other
)

// hostileClients attacks all heads from one address: it holds connections open, and leases addresses for invented
// MACs. Meanwhile writes must be acknowledged and known machines must boot.
func hostileClients(ctx context.Context, t *trial) (what string, undo func() error, err error) {
	if err := t.plugHostile(); err != nil {
		return "", nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := testhead.Command(hostilePort, self)
	words := []string{hostileAddress.String()}
	for _, a := range t.addresses() {
		words = append(words, a.String())
	}
	cmd.Env = append(os.Environ(), hostileEnv+"="+strings.Join(words, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	p, err := testhead.Start(cmd)
	if err != nil {
		return "", nil, err
	}
	ready := make(chan error, 1)
	go func() {
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = ctx.Err()
	}
	from := t.history.now()
	return "all", func() error {
		defer p.Kill()
		return errors.Join(t.wroteSince(from), t.bootedSince(from), t.memory())
	}, err
}

// maxMemory is what a head of this small site may use under attack, in bytes.
const maxMemory = 512 << 20

// memory returns an error if a head uses more memory than it may.
func (t *trial) memory() error {
	for _, h := range t.heads {
		h.mu.Lock()
		run := h.run
		h.mu.Unlock()
		if run == nil {
			continue
		}
		used, err := run.Resident()
		if err != nil {
			return err
		}
		if used > maxMemory {
			return fmt.Errorf("%s uses %d MiB of memory", h.port, used>>20)
		}
	}
	return nil
}

// plugHostile creates the port of hostile clients, once.
func (t *trial) plugHostile() error {
	if t.fabric.has(hostilePort) {
		return nil
	}
	return t.fabric.plug(hostilePort, hostileAddress)
}

// runHostile attacks until it is killed. It writes a line when all connections have been tried.
func runHostile() error {
	words := strings.Fields(os.Getenv(hostileEnv))
	at, err := netip.ParseAddr(words[0])
	if err != nil {
		return err
	}
	var begun, forging sync.WaitGroup
	for _, w := range words[1:] {
		head, err := netip.ParseAddr(w)
		if err != nil {
			return err
		}
		for range unreadBodies {
			begun.Go(func() { holdBody(head) })
		}
		for range idleConnections {
			begun.Go(func() { holdIdle(head) })
		}
		for range forgers {
			forging.Go(func() { forgeLeases(at, head) })
		}
	}
	begun.Wait()
	fmt.Println("ready")
	forging.Wait()
	return errors.New("the attack ended by itself")
}

// dialTimeout is how long the attacker waits for a connection.
const dialTimeout = 5 * time.Second

// holdBody opens a connection to the API, sends half of a request, and never reads.
func holdBody(head netip.Addr) {
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout},
		Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}}} // an attacker trusts any head
	c, err := d.Dial("tcp", netip.AddrPortFrom(head, 7480).String())
	if err != nil {
		return // refused, as it should be
	}
	_ = c.SetWriteDeadline(time.Now().Add(dialTimeout))
	_, _ = fmt.Fprintf(c, "POST /v1/agent/hello HTTP/1.1\r\nHost: head\r\nContent-Length: %d\r\n\r\n", 1<<20)
	_, _ = io.CopyN(c, rand.Reader, 512<<10)
	held.keep(c)
}

// holdIdle opens a connection to the boot server and sends nothing.
func holdIdle(head netip.Addr) {
	c, err := net.DialTimeout("tcp", netip.AddrPortFrom(head, 7481).String(), dialTimeout)
	if err == nil {
		held.keep(c)
	}
}

// held is the attacker's connections, which must not be closed as garbage.
var held connections

type connections struct {
	mu  sync.Mutex
	all []net.Conn // guarded by mu
}

func (h *connections) keep(c net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, c)
}

// forgeLeases leases addresses from a head for one invented MAC after the other.
func forgeLeases(at, head netip.Addr) {
	for {
		var mac [6]byte
		_, _ = rand.Read(mac[:])
		mac[0] = 2 // locally administered
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, _ = requestLease(ctx, net.HardwareAddr(mac[:]).String(), at, []netip.Addr{head})
		cancel()
		time.Sleep(20 * time.Millisecond)
	}
}
