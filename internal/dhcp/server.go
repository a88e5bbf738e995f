package dhcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
)

// Config of a Server. Handler must be set.
type Config struct {
	Handler Handler

	// Interfaces are the names of the interfaces to serve, on ports 67 and, with Proxy, 4011. Others stay free for
	// other servers.
	Interfaces []string
	// Address is where to listen when Interfaces are empty: an address of this host and any port, for relayed
	// clients and without privilege; or the unspecified address for every interface.
	Address netip.AddrPort
	// Proxy makes the server also listen on port 4011, where PXE firmware asks a proxy for its boot file.
	Proxy bool

	Workers int          // goroutines per socket, of which all but one may wait; 0 means 256
	Logger  *slog.Logger // nothing is logged if nil
	Metrics *Metrics     // not registered if nil
}

// Server answers DHCP clients and relays. Listen returns one.
type Server struct {
	Config
	sockets []*socket
	frames  *frames // nil without the privilege
	names   sync.Map
}

// Listen opens the sockets. Serve or Close must follow.
func Listen(c Config) (*Server, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = newMetrics()
	}
	if c.Workers <= 0 {
		c.Workers = 256
	}
	s := &Server{Config: c}
	// Without the privilege, clients without an address are answered by broadcast.
	s.frames, _ = openFrames()
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("dhcp: listen: %w", errors.Join(err, s.Close()))
	}
	return s, nil
}

func (s *Server) listen() error {
	names, port, addr := s.Interfaces, uint16(ServerPort), netip.IPv4Unspecified()
	if len(names) == 0 {
		if !s.Address.IsValid() {
			return fmt.Errorf("neither interface nor address: %w", trivet.ErrInvalid)
		}
		names, port, addr = []string{""}, s.Address.Port(), s.Address.Addr()
	}
	ports := []uint16{port}
	if s.Proxy {
		ports = append(ports, ProxyPort)
	}
	for _, name := range names {
		for _, port := range ports {
			socket, err := listen(name, netip.AddrPortFrom(addr, port))
			if err != nil {
				return err
			}
			s.sockets = append(s.sockets, socket)
		}
	}
	return nil
}

// Addrs returns the addresses that the server listens on.
func (s *Server) Addrs() []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, socket := range s.sockets {
		addrs = append(addrs, socket.addr())
	}
	return addrs
}

// Close closes the sockets, which ends Serve.
func (s *Server) Close() error {
	var errs []error
	for _, socket := range s.sockets {
		if err := socket.conn.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.frames != nil {
		s.frames.file.Close()
	}
	return errors.Join(errs...)
}

// Serve answers until ctx ends or a socket fails. When it returns, all its goroutines have ended and the sockets
// are closed. It returns nil if ctx ended.
func (s *Server) Serve(ctx context.Context) error {
	sockets, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	for _, socket := range s.sockets {
		sockets.Go(func() error { return s.serve(ctx, socket) })
	}
	err := sockets.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("dhcp: serve: %w", err)
	}
	return nil
}

// accept parses and counts a packet; nil if it is dropped.
func (s *Server) accept(socket *socket, b []byte, a arrival) *Packet {
	if a.missed > 0 {
		s.Metrics.missed.Add(float64(a.missed))
	}
	r, err := parse(b)
	if err != nil {
		s.Metrics.drop(dropMalformed)
		s.Logger.Debug("packet dropped", "from", a.from, "error", err)
		return nil
	}
	r.From, r.Local, r.Ifindex, r.Unicast, r.Received = a.from, a.local, a.ifindex, a.unicast, a.at
	r.Interface, r.Port = s.interfaceName(socket, a.ifindex), socket.port
	s.Metrics.received[r.Type()].Inc()
	return r
}

// answer calls the Handler and sends its reply.
func (s *Server) answer(ctx context.Context, socket *socket, r *Packet, out []byte) {
	reply := s.Handler.ServeDHCP(ctx, r)
	if reply == nil {
		s.Metrics.drop(dropSilent)
		return
	}
	packet, left, err := reply.encode(out, r)
	if err != nil {
		s.Metrics.drop(dropReply)
		s.Logger.Error("reply not valid", "mac", r.MAC(), "error", err)
		return
	}
	if left > 0 {
		s.Metrics.left.Add(float64(left))
	}
	path, err := s.send(socket, r, reply, packet)
	if err != nil {
		s.Metrics.drop(dropSend)
		s.Logger.Debug("reply not sent", "mac", r.MAC(), "path", path, "error", err)
		return
	}
	s.Metrics.sent(reply.Type, path)
	s.Metrics.duration.Observe(time.Since(r.Received).Seconds())
}

// send sends an answer. Where a frame cannot be sent the answer is broadcast.
func (s *Server) send(socket *socket, r *Packet, reply *Reply, packet []byte) (path, error) {
	path, to := reply.route(r)
	if path == toFrame {
		from := netip.AddrPortFrom(r.Local, socket.port)
		if s.frames != nil && r.Local.Is4() && s.frames.send(r.Ifindex, r.MAC(), from, to, packet) == nil {
			return path, nil
		}
		path, to = toAll, netip.AddrPortFrom(broadcast, ClientPort)
	}
	ifindex := 0 // the routing table decides
	if path == toAll {
		ifindex = r.Ifindex
	}
	_, _, err := socket.conn.WriteMsgUDPAddrPort(packet, pktinfo(r.Local, ifindex), to)
	return path, err
}

// interfaceName returns the interface of a packet. The index of an interface does not change.
func (s *Server) interfaceName(socket *socket, index int) string {
	if socket.name != "" || index == 0 {
		return socket.name
	}
	if name, ok := s.names.Load(index); ok {
		return name.(string)
	}
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	s.names.Store(index, i.Name)
	return i.Name
}
