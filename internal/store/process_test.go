package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/store"
)

// The heads of the history test are separate processes, so that they can be killed at any point: this test binary, run
// again, serves a member and its store over its standard input and output.

var seed = flag.Uint64("seed", 0, "seed of the history test to replay; 0: a random one")

const headEnv = "TRIVET_STORE_TEST_HEAD"

func TestMain(m *testing.M) {
	if cfg := os.Getenv(headEnv); cfg != "" {
		if err := serveHead(cfg); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// HeadConfig configures such a head.
type HeadConfig struct {
	Name, Dir string
	Listen    string // where the other members reach this one; empty for a single member
	Seed      uint64 // of its faults
	Percent   int    // of calls to etcd and of watch responses that are lost
	Bug       string

	Heartbeat, Election     time.Duration // as in cluster.Config
	AttemptTimeout, Timeout time.Duration // as in store.Options
}

func (c HeadConfig) url() string {
	if c.Listen == "" {
		return ""
	}
	return "http://" + c.Listen
}

// node is a member that other members reach over HTTP.
type node struct {
	*cluster.Member
	server *http.Server
}

// open runs a head's member. Its server starts before the member and stops after it.
func (c HeadConfig) open(join []cluster.Peer) (n node, err error) {
	var peers atomic.Pointer[http.Handler]
	handler := func(w http.ResponseWriter, r *http.Request) {
		if h := peers.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		http.Error(w, "starting", http.StatusServiceUnavailable)
	}
	n.server = &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(handler)}
	if c.Listen != "" {
		l, err := net.Listen("tcp", c.Listen)
		if err != nil {
			return n, err
		}
		go func() { _ = n.server.Serve(l) }() // until close
	}
	if n.Member, err = cluster.Open(context.Background(), cluster.Config{
		Name: c.Name, Dir: c.Dir, URL: c.url(), Join: join, Heartbeat: c.Heartbeat, Election: c.Election,
	}); err != nil {
		return n, errors.Join(err, n.server.Close())
	}
	h := n.PeerHandler()
	peers.Store(&h)
	return n, nil
}

func (n node) close() {
	n.Close()
	_ = n.server.Close()
}

func serveHead(cfg string) error {
	var c HeadConfig
	if err := json.Unmarshal([]byte(cfg), &c); err != nil {
		return err
	}
	m, err := c.open(nil)
	if err != nil {
		return err
	}
	defer m.close()
	link := newFaults(m.Client(), c.Seed)
	h := newHead(link.client(), store.Options{
		Head: c.Name, Term: m.Term, AttemptTimeout: c.AttemptTimeout, Timeout: c.Timeout,
	})
	h.Seed(c.Bug)
	if err := h.Start(context.Background()); err != nil {
		return err
	}
	defer h.Close()
	link.lose(c.Percent)
	server := rpc.NewServer()
	if err := server.RegisterName("Head", &Service{head: h, member: m.Member,
		watchers: map[string]*store.Watcher{}}); err != nil {
		return err
	}
	server.ServeConn(pipe{os.Stdin, os.Stdout})
	link.pending.Wait()
	return nil
}

type pipe struct {
	io.ReadCloser
	io.Writer
}

// Service is what a head serves to the test.
type Service struct {
	head     *head
	member   *cluster.Member
	mu       sync.Mutex
	watchers map[string]*store.Watcher // guarded by mu
}

// Value is the value of a key: how often it was written, and by which operation last. Zero: the key does not exist.
type Value struct {
	Count int64
	Last  string
}

// Op is one operation on a key: "write" increments its count, "delete" removes it, "read" reads it.
type Op struct{ Do, Key, ID string }

// Result is the result of an operation: the value before it, and the revision at which its own can be read.
type Result struct {
	Value
	Revision int64
	Failed   string // empty: the operation succeeded
	Unknown  bool   // the operation may have been committed
}

// Do runs an operation.
func (d *Service) Do(op Op, out *Result) error {
	rev, err := d.head.Update(context.Background(), func(tx *store.Tx) (err error) {
		out.Value, err = d.do(tx, op)
		return err
	})
	out.Revision = rev
	switch {
	case err == nil && d.head.Revision() < rev:
		return fmt.Errorf("%v was committed at %d, and the copy is at %d", op, rev, d.head.Revision())
	case errors.Is(err, trivet.ErrUnknown):
		out.Failed, out.Unknown = err.Error(), true
	case errors.Is(err, trivet.ErrUnavailable):
		out.Failed = err.Error()
	case err != nil:
		return err
	}
	return nil
}

// do runs an operation on a key's two records, which must always be equal.
func (d *Service) do(tx *store.Tx, op Op) (Value, error) {
	t := d.head.machines.In(tx)
	was, err := valueOf(t.Get(op.Key))
	if err != nil {
		return was, err
	}
	if twin, err := valueOf(t.Get(op.Key + "-twin")); err != nil || twin != was {
		return was, fmt.Errorf("%s is %v, and its twin is %v, %w", op.Key, was, twin, err)
	}
	for _, name := range []string{op.Key, op.Key + "-twin"} {
		switch {
		case op.Do == "write":
			m := machine(name, op.ID)
			m.Status.Epoch = was.Count + 1
			err = errors.Join(err, t.Put(m))
		case op.Do == "delete" && was != Value{}:
			err = errors.Join(err, t.Delete(name))
		}
	}
	return was, err
}

func valueOf(m *trivet.Machine, err error) (Value, error) {
	switch {
	case errors.Is(err, trivet.ErrNotFound):
		return Value{}, nil
	case err != nil:
		return Value{}, err
	}
	return Value{m.Status.Epoch, m.Spec.Rack}, nil
}

// From is where a consumer resumes.
type From struct {
	Consumer string
	Revision int64
}

// Changes are the changes since, and the revision at which to resume.
type Changes struct {
	Events   []Change
	Revision int64
}

// Change is an event. A deleted record's value is zero.
type Change struct {
	Revision int64
	Key      string
	Value
}

// Next returns the next changes to a consumer, or none after a timeout. It reuses the consumer's watcher if that is at
// the same revision.
func (d *Service) Next(from From, out *Changes) error {
	d.mu.Lock()
	w := d.watchers[from.Consumer]
	if w == nil || w.Revision() != from.Revision {
		w = d.head.Watch(from.Revision, "Machine")
		d.watchers[from.Consumer] = w
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	events, err := w.Next(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, trivet.ErrUnavailable) {
		return err
	}
	for _, e := range events {
		c := Change{Revision: e.Revision, Key: e.Name}
		if m, ok := e.Record().(*trivet.Machine); ok {
			c.Value = Value{m.Status.Epoch, m.Spec.Rack}
		}
		out.Events = append(out.Events, c)
	}
	out.Revision = w.Revision()
	return nil
}

// Revision returns the head's revision after a sync.
func (d *Service) Revision(_ struct{}, out *int64) error {
	err := d.head.Sync(context.Background())
	*out = d.head.Revision()
	return err
}

// IsLeader reports whether the head's member is the leader.
func (d *Service) IsLeader(_ struct{}, out *bool) error {
	*out = d.member.IsLeader()
	return nil
}

// process is a head in a separate process.
type process struct {
	cmd    *exec.Cmd
	rpc    *rpc.Client
	stderr bytes.Buffer
}

// run starts a head.
func run(t testing.TB, c HeadConfig) *process {
	t.Helper()
	cfg, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), headEnv+"="+string(cfg))
	p.cmd.Stderr = &p.stderr
	in, errIn := p.cmd.StdinPipe()
	out, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	p.rpc = rpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, in})
	return p
}

// kill kills the process. Calls without a response may have been executed.
func (p *process) kill(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	_ = p.rpc.Close() // not before: requests that were sent would appear as not sent
	p.checkOutput(t)
}

// stop stops the process gracefully.
func (p *process) stop(t testing.TB) {
	t.Helper()
	_ = p.rpc.Close()
	_ = p.cmd.Wait()
	p.checkOutput(t)
}

// checkOutput fails the test if the process wrote errors: a panic, or a data race.
func (p *process) checkOutput(t testing.TB) {
	t.Helper()
	if p.stderr.Len() > 0 {
		t.Errorf("output of a head:\n%s", p.stderr.Bytes())
	}
}
