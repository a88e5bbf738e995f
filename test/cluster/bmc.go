package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
)

// A rack can have BMCs: a Redfish service for each machine, at a port of the rack's address. They can be slow, err, or
// do nothing for a while. What each receives and does is written to a file.

// The login of all BMCs, and the port of the first.
const (
	bmcUser     = "trivet"
	bmcPassword = "chaos-password"
	bmcPort     = 9000
)

// bmcMode is how BMCs answer.
type bmcMode string

const (
	bmcSound   bmcMode = "sound"
	bmcSlow    bmcMode = "slow"    // it does what is requested, and answers later than any head waits
	bmcErrs    bmcMode = "errs"    // every request is answered by an error
	bmcGarbles bmcMode = "garbles" // it does what is requested, and its answers are cut off or no JSON
	bmcForgets bmcMode = "forgets" // sessions end at once
	bmcIdles   bmcMode = "idles"   // it acknowledges commands, and does nothing
	bmcHangsUp bmcMode = "hangs"   // it does what is requested, and closes the connection without an answer
)

// slowAnswer is how late a slow BMC answers: a head uses it for 20 s at most.
const slowAnswer = 22 * time.Second

// command is what a BMC received, or what it did.
type command struct {
	At      int64  `json:"at"` // in nanoseconds since 1970
	Machine string `json:"machine"`
	From    string `json:"from"` // the connection: address, port, and a number, as ports are used again
	Request string `json:"request,omitempty"`
	// Power is the state that the machine's power was changed to.
	Power bmc.State `json:"power,omitempty"`
}

// box is a simulated machine as its BMC sees it. Its service serializes the calls.
type box struct {
	rack    *powerRack
	machine string
	mac     string
	from    string // the connection whose request is handled
}

// Power implements [bmctest.Machine].
func (b *box) Power() bmc.State { return b.rack.state(b.machine) }

// SetPower implements [bmctest.Machine].
func (b *box) SetPower(want bmc.State) error {
	b.rack.log(command{Machine: b.machine, From: b.from, Power: want})
	b.rack.set(b.machine, b.mac, want)
	return nil
}

// SetNextBoot implements [bmctest.Machine]. Machines here boot from what DHCP says.
func (b *box) SetNextBoot(bmc.Device) error { return nil }

// controller is the BMC of one machine.
type controller struct {
	rack    *powerRack
	mu      sync.Mutex // of one request at a time
	box     *box
	service *bmctest.Service
}

func newController(r *powerRack, machine, mac string) *controller {
	c := &controller{rack: r, box: &box{rack: r, machine: machine, mac: mac}}
	c.service = bmctest.NewService(c.box)
	c.service.User, c.service.Password = bmcUser, bmcPassword
	return c
}

// ServeHTTP answers as the present mode says.
func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mode := c.rack.mode.Load().(bmcMode)
	c.rack.log(command{Machine: c.box.machine, From: connection(r), Request: r.Method + " " + r.URL.Path})
	changes := r.Method == http.MethodPatch || strings.HasSuffix(r.URL.Path, ".Reset")
	switch {
	case mode == bmcErrs:
		http.Error(w, "the BMC is out of memory", http.StatusServiceUnavailable)
	case mode == bmcForgets && r.Header.Get("X-Auth-Token") != "":
		http.Error(w, "no such session", http.StatusUnauthorized)
	case mode == bmcIdles && changes:
		w.WriteHeader(http.StatusNoContent)
	default:
		c.answer(w, r, mode)
	}
}

// answer does what is requested, and answers it in the way of a mode.
func (c *controller) answer(w http.ResponseWriter, r *http.Request, mode bmcMode) {
	got := httptest.NewRecorder()
	c.mu.Lock()
	c.box.from = connection(r)
	c.service.ServeHTTP(got, r)
	c.mu.Unlock()
	switch mode {
	case bmcSlow:
		select {
		case <-r.Context().Done():
		case <-time.After(slowAnswer):
		}
	case bmcHangsUp:
		panic(http.ErrAbortHandler)
	case bmcGarbles:
		w.Header().Set("Content-Length", fmt.Sprint(got.Body.Len()))
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(got.Body.Bytes()[:got.Body.Len()/2])
		return
	}
	for key, values := range got.Header() {
		w.Header()[key] = values
	}
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
}

// powerRack is the machines of a rack by their power, in the rack's process.
type powerRack struct {
	boot func(machine, mac string) context.CancelFunc
	mode atomic.Value // bmcMode

	mu  sync.Mutex
	on  map[string]context.CancelFunc // guarded by mu; by machine
	out io.Writer                     // guarded by mu; of what the BMCs received and did
}

func newPowerRack(boot func(machine, mac string) context.CancelFunc) *powerRack {
	r := &powerRack{boot: boot, on: map[string]context.CancelFunc{}, out: io.Discard}
	r.mode.Store(bmcSound)
	return r
}

// state is whether a machine has power.
func (r *powerRack) state(machine string) bmc.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.on[machine] != nil {
		return bmc.On
	}
	return bmc.Off
}

// set powers a machine off, if it is on, and then on, if that is wanted.
func (r *powerRack) set(machine, mac string, want bmc.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off := r.on[machine]; off != nil {
		off()
	}
	delete(r.on, machine)
	if want == bmc.On {
		r.on[machine] = r.boot(machine, mac)
	}
}

// serveBMC serves the BMC of a machine until the rack ends.
func (r *powerRack) serveBMC(machine, mac string, at netip.AddrPort, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.out = out
	r.mu.Unlock()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newController(r, machine, mac), ReadHeaderTimeout: 10 * time.Second,
		ConnContext: numberConnections()}
	go func() { _ = server.Serve(l) }()
	return nil
}

type connectionKey struct{}

// numberConnections returns a function that gives each connection a number.
func numberConnections() func(context.Context, net.Conn) context.Context {
	var last atomic.Int64
	return func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, last.Add(1))
	}
}

// connection returns the name of the connection of a request.
func connection(r *http.Request) string {
	return fmt.Sprint(r.RemoteAddr, " #", r.Context().Value(connectionKey{}))
}

// log writes what a BMC received or did.
func (r *powerRack) log(c command) {
	c.At = time.Now().UnixNano()
	line, _ := json.Marshal(c) // cannot fail
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = r.out.Write(append(line, '\n')) // what is missing shows in the checks
}

// do handles a line of the rack's standard input.
func (r *powerRack) do(words []string, at netip.Addr, dir string) error {
	switch words[0] {
	case "on":
		r.set(words[1], words[2], bmc.On)
	case "off":
		r.set(words[1], "", bmc.Off)
	case "reset":
		if r.state(words[1]) == bmc.On {
			r.set(words[1], words[2], bmc.On)
		}
	case "bmc":
		port, err := strconv.ParseUint(words[3], 10, 16)
		if err != nil {
			return err
		}
		return r.serveBMC(words[1], words[2], netip.AddrPortFrom(at, uint16(port)), bmcLog(dir, at))
	case "mode":
		r.mode.Store(bmcMode(words[1]))
	}
	return nil
}

// bmcLog is the file of what the BMCs of the rack at an address received and did.
func bmcLog(dir string, at netip.Addr) string { return dir + "/" + at.String() + ".bmc.log" }
