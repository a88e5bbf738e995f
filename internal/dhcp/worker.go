package dhcp

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// worker reads a socket and answers. Only one worker of a socket reads at a time, and answers before it reads
// again, which has 1.5 times the throughput of several that wake each other for each packet. A worker whose Handler
// yields is replaced, and ends after its answer. One worker always reads: packets whose answer needs no wait are
// answered however many others wait for a slow store.
type worker struct {
	ctx      context.Context
	server   *Server
	socket   *socket
	workers  *errgroup.Group // of the socket, bounded
	replaced bool
}

// serve reads the socket until ctx ends or it fails.
func (s *Server) serve(ctx context.Context, socket *socket) error {
	workers, ctx := errgroup.WithContext(ctx)
	workers.SetLimit(s.Workers)
	w := &worker{ctx: ctx, server: s, socket: socket, workers: workers}
	workers.Go(w.run)
	return workers.Wait()
}

func (w *worker) run() error {
	in, out, control := make([]byte, maxReceive+1), make([]byte, 0, maxMax), make([]byte, 128)
	for !w.replaced {
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
	if !w.replaced {
		next := &worker{ctx: w.ctx, server: w.server, socket: w.socket, workers: w.workers}
		w.replaced = w.workers.TryGo(next.run)
		if !w.replaced {
			w.server.Metrics.drop(dropBusy)
		}
	}
	return w.replaced
}
