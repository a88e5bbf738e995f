package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/dhcp"
)

// neighbour is the answer of a head to another one that asks, by DHCPINFORM on a network that it is to serve, whether a cluster
// is there: in option 43, under a class of our own, so that no machine takes notice.
type neighbour struct {
	Cluster string   `json:"cluster"`
	Head    string   `json:"head"`
	API     []string `json:"api"`
}

// neighbourClass is the vendor class of the question and of the answer.
const neighbourClass = "trivet.head"

// alone refuses to make a second cluster on a network. It costs a quarter of a second, once in a cluster's life.
func (s *Server) alone(ctx context.Context) error {
	if s.cfg.NewCluster || len(s.cfg.DHCPInterfaces) == 0 {
		return nil
	}
	found := make(chan *neighbour, len(s.cfg.DHCPInterfaces))
	for _, name := range s.cfg.DHCPInterfaces {
		go func() { found <- s.ask(ctx, name) }() // ends within the time of its tries
	}
	for range s.cfg.DHCPInterfaces {
		if n := <-found; n != nil {
			return &trivet.Error{Op: "make a cluster", Err: fmt.Errorf("%w: cluster %.40q serves this network already, with %.40q at %.200q", trivet.ErrExists, n.Cluster, n.Head, n.API),
				Hint: fmt.Sprintf("to join it: get a token by 'trivet head token' there, and add --join %.200s --token TOKEN; to make another cluster: add --new-cluster", strings.Join(n.API, ","))}
		}
	}
	return nil
}

// ask asks one network. A question that cannot be asked has no answer: what is wrong shows when DHCP is served there.
func (s *Server) ask(ctx context.Context, name string) (n *neighbour) {
	c := dhcp.ClientConfig{Options: []dhcp.Option{dhcp.Text(dhcp.OptClass, neighbourClass)}, Wait: 80 * time.Millisecond, Tries: 2}
	err := dhcp.Inquire(ctx, name, c, func(l *dhcp.Lease) bool {
		got := neighbour{}
		if string(l.Options[dhcp.OptClass]) != neighbourClass || json.Unmarshal(l.Options[dhcp.OptVendor], &got) != nil {
			return false
		}
		n = &got
		return true
	})
	if err != nil && !errors.Is(err, trivet.ErrUnavailable) {
		s.cfg.Log.Debug("cannot ask for another cluster", "interface", name, "error", err)
	}
	return n
}

// answering answers such questions, and gives all others on.
func (s *Server) answering(door dhcp.Handler) dhcp.Handler {
	return dhcp.HandlerFunc(func(ctx context.Context, r *dhcp.Request) *dhcp.Reply {
		if r.Type() != dhcp.Inform || string(r.Option(dhcp.OptClass)) != neighbourClass {
			return door.ServeDHCP(ctx, r)
		}
		n := neighbour{Cluster: s.root.Cluster(), Head: s.data.Name, API: s.APIURLs()}
		text, err := json.Marshal(n)
		if len(text) > 255 { // one option
			n.API = n.API[:1]
			text, err = json.Marshal(n)
		}
		if err != nil || len(text) > 255 {
			return nil
		}
		reply := &dhcp.Reply{Type: dhcp.Ack, Server: r.Local}
		reply.Add(dhcp.Text(dhcp.OptClass, neighbourClass), dhcp.Option{Code: dhcp.OptVendor, Value: text})
		return reply
	})
}
