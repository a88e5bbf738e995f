package cluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A rack is simulated machines at a port of their own: this program again. Each line of its standard input powers a
// machine on, after an off where it was on ("on NAME MAC"), or off ("off NAME"), or restarts one that is on ("reset
// NAME MAC"), gives it a BMC ("bmc NAME MAC PORT"), or sets how all BMCs answer ("mode MODE").

// rackEnv names the environment variable that makes a process a rack. It holds the directory and the address of the
// rack, and the addresses of the heads, with spaces between.
const rackEnv = "TRIVET_CLUSTER_TEST_RACK"

// isRack reports whether this process is a rack, which then calls runRack.
func isRack() bool { return os.Getenv(rackEnv) != "" }

// runRack runs machines until standard input ends.
func runRack() error {
	words := strings.Fields(os.Getenv(rackEnv))
	at, err := netip.ParseAddr(words[1])
	if err != nil {
		return err
	}
	var heads []netip.Addr
	for _, w := range words[2:] {
		h, err := netip.ParseAddr(w)
		if err != nil {
			return err
		}
		heads = append(heads, h)
	}
	http.DefaultClient.Timeout = 15 * time.Second // the simulated firmware's timeout of one fetch
	var machines sync.WaitGroup
	r := newPowerRack(func(machine, mac string) context.CancelFunc {
		return powerOn(&machines, machine, mac, at, heads)
	})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := r.do(strings.Fields(lines.Text()), at, words[0]); err != nil {
			return err
		}
	}
	r.mu.Lock() // no BMC changes anything from now on
	for _, off := range r.on {
		off()
	}
	machines.Wait()
	return nil
}

// powerOn boots a machine and returns a function that turns it off and waits for its end.
func powerOn(all *sync.WaitGroup, name, mac string, at netip.Addr, heads []netip.Addr) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	m := &lab.Machine{
		Name: name, MAC: mac, Dir: strings.Fields(os.Getenv(rackEnv))[0], Up: func() {},
		Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Lease: func(ctx context.Context) (*dhcp.Lease, error) {
			got, err := requestLease(ctx, mac, at, heads)
			if err == nil {
				err = addAddress(got.Address.Addr())
			}
			return got, err
		},
	}
	all.Go(func() {
		defer close(ended)
		if err := m.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
		}
	})
	return func() { cancel(); <-ended }
}

// rack is the handle of such a process.
type rack struct {
	port    string
	address netip.Addr
	dir     string
	run     *testhead.Process

	mu sync.Mutex
	in io.WriteCloser // guarded by mu
}

func (l *load) startRack(i int) (*rack, error) {
	r := &rack{port: fmt.Sprint("rack", i), address: rackAddress(i), dir: l.site.path("machines")}
	if err := l.site.fabric.plug(r.port, r.address); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(l.site.path(r.port + ".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	env := []string{r.dir, r.address.String()}
	for _, a := range l.site.addresses() {
		env = append(env, a.String())
	}
	cmd := testhead.Command(r.port, self)
	cmd.Env = append(os.Environ(), rackEnv+"="+strings.Join(env, " "))
	cmd.Stdout, cmd.Stderr = log, log
	if r.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	r.run, err = testhead.Start(cmd)
	return r, err
}

func rackAddress(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, 1, byte(1 + i)}) }

// send sends a line to the rack.
func (r *rack) send(words ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = io.WriteString(r.in, strings.Join(words, " ")+"\n") // a rack that is gone shows in its workflows
}

// signal stops the rack's machines, or lets them continue.
func (r *rack) signal(s syscall.Signal) { r.run.Signal(s) }

// close turns all machines off.
func (r *rack) close() {
	r.mu.Lock()
	_ = r.in.Close()
	r.mu.Unlock()
	if r.run.Wait(10*time.Second) != nil {
		r.run.Kill()
	}
}

// ledgerOf is the file of a machine's own ledger.
func (s *site) ledgerOf(machine string) string {
	return (&lab.Machine{Name: machine, Dir: filepath.Join(s.dir, "machines")}).JournalPath()
}
