package dhcp

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// worker reads a socket and answers. One of a socket's workers reads at a time and answers at once, which is half as fast
// again as several that wake each other for each packet. It is replaced when its Handler yields, and ends thereafter.
type worker struct {
	ctx      context.Context
	server   *Server
	socket   *socket
	crew     *errgroup.Group // the socket's workers, bounded
	replaced bool
}

// serve reads the socket until ctx ends or it fails.
func (s *Server) serve(ctx context.Context, socket *socket) error {
	crew, ctx := errgroup.WithContext(ctx)
	crew.SetLimit(s.Workers)
	w := &worker{ctx: ctx, server: s, socket: socket, crew: crew}
	crew.Go(w.run)
	return crew.Wait()
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

// yield lets another worker read. If there are enough, this one goes on when its Handler returns.
func (w *worker) yield() {
	if !w.replaced {
		next := &worker{ctx: w.ctx, server: w.server, socket: w.socket, crew: w.crew}
		w.replaced = w.crew.TryGo(next.run)
	}
}
