package dhcp

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// worker reads a socket and answers. Only one worker of a socket reads at a time, and answers before it reads
// again, which has 1.5 times the throughput of several that wake each other for each packet. A worker whose Handler
// yields is replaced, by an idle one or a new one, and is idle after its answer. One worker always reads: packets whose
// answer needs no wait are answered however many others wait for a slow store.
type worker struct {
	*pool
	replaced bool
}

// pool is the workers of a socket.
type pool struct {
	ctx     context.Context
	server  *Server
	socket  *socket
	workers *errgroup.Group // bounded
	idle    chan struct{}   // a place for each of the idle workers
	next    chan struct{}   // received from by the idle workers
}

// maxIdle bounds the workers that are kept for the next burst: each has a stack and buffers.
const maxIdle = 128

// serve reads the socket until ctx ends or it fails.
func (s *Server) serve(ctx context.Context, socket *socket) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(s.Workers)
	p := &pool{ctx: ctx, server: s, socket: socket, workers: workers,
		idle: make(chan struct{}, maxIdle), next: make(chan struct{})}
	workers.Go((&worker{pool: p}).run)
	return workers.Wait()
}

func (w *worker) run() error {
	in, out, control := make([]byte, maxReceive+1), make([]byte, 0, maxMax), make([]byte, 128)
	for !w.replaced || w.wait() {
		n, a, err := w.socket.receive(in, control)
		if err != nil {
			return err
		}
		if r := w.server.accept(w.socket, in[:n], a); r != nil {
			r.worker = w
			w.server.answer(w.ctx, w.socket, r, out)
		}
	}
	return nil
}

// yield lets another worker read. It is false at the limit of workers.
func (w *worker) yield() bool {
	if w.replaced {
		return true
	}
	select {
	case w.next <- struct{}{}:
		w.replaced = true
	default:
		w.replaced = w.workers.TryGo((&worker{pool: w.pool}).run)
	}
	if !w.replaced {
		w.server.Metrics.drop(dropBusy)
	}
	return w.replaced
}

// wait waits until the worker replaces another one. It is false when the worker ends: enough are idle, or the
// server ends.
func (w *worker) wait() bool {
	select {
	case w.idle <- struct{}{}:
		defer func() { <-w.idle }()
	default:
		return false
	}
	select {
	case <-w.next:
		w.replaced = false
		return true
	case <-w.ctx.Done():
		return false
	}
}
