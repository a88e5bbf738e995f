package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
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
			return n.refusal()
		}
	}
	return nil
}

// refusal says how to join the cluster that is there.
func (n *neighbour) refusal() error {
	join := "URL"
	if len(n.API) > 0 {
		join = strings.Join(n.API, ",")
	}
	return &trivet.Error{Op: "make a cluster", Err: fmt.Errorf("%w: cluster %.40q serves this network already, with %.40q at %q", trivet.ErrExists, n.Cluster, n.Head, n.API),
		Hint: fmt.Sprintf("to join it: get a token by 'trivet head token' there, and add --join %s --token TOKEN; to make another cluster: add --new-cluster", join)}
}

// apiURL is what may stand in a command that a person is told to run: an answer comes from anybody on the network.
var apiURL = regexp.MustCompile(`^https://([0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$`)

// parseNeighbour reads an answer, and leaves out what is no URL of an API.
func parseNeighbour(text []byte) (*neighbour, error) {
	var n neighbour
	if err := json.Unmarshal(text, &n); err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	n.API = slices.DeleteFunc(n.API, func(u string) bool { return !apiURL.MatchString(u) })
	return &n, nil
}

// ask asks one network. A question that cannot be asked has no answer: what is wrong shows when DHCP is served there.
func (s *Server) ask(ctx context.Context, name string) (n *neighbour) {
	c := dhcp.ClientConfig{Options: []dhcp.Option{dhcp.Text(dhcp.OptClass, neighbourClass)}, Timeout: 80 * time.Millisecond, Attempts: 2}
	err := dhcp.Inquire(ctx, name, c, func(l *dhcp.Lease) bool {
		if string(l.Options[dhcp.OptClass]) != neighbourClass {
			return false
		}
		var err error
		n, err = parseNeighbour(l.Options[dhcp.OptVendor])
		return err == nil
	})
	if err != nil && !errors.Is(err, trivet.ErrUnavailable) {
		s.cfg.Log.Debug("cannot ask for another cluster", "interface", name, "error", err)
	}
	return n
}

// answering answers such questions, and gives all others on.
func (s *Server) answering(door dhcp.Handler) dhcp.Handler {
	return dhcp.HandlerFunc(func(ctx context.Context, r *dhcp.Packet) *dhcp.Reply {
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
