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

// foundCluster is the response of a head to a probe: before another head creates a cluster, it probes the networks that
// it will serve for an existing one, by DHCPINFORM. The response is in option 43 under a vendor class of our own, which
// machines ignore.
type foundCluster struct {
	Cluster string   `json:"cluster"`
	Head    string   `json:"head"`
	API     []string `json:"api"`
}

// probeClass is the vendor class of the probe and of its response.
const probeClass = "trivet.head"

const (
	probeTimeout  = 80 * time.Millisecond
	probeAttempts = 2
)

// findCluster returns an error where another cluster serves the networks of --dhcp. It is called once for each cluster.
func (c *Config) findCluster(ctx context.Context) error {
	if c.NewCluster {
		return nil
	}
	if f := c.search(ctx); f != nil {
		return f.err()
	}
	return nil
}

// search returns a cluster that serves the networks of --dhcp; nil: none answers.
func (c *Config) search(ctx context.Context) *foundCluster {
	results := make(chan *foundCluster, len(c.DHCPInterfaces))
	for _, name := range c.DHCPInterfaces {
		go func() { results <- c.probe(ctx, name) }() // ends after its attempts
	}
	for range c.DHCPInterfaces {
		if f := <-results; f != nil {
			return f
		}
	}
	return nil
}

// probe sends a probe to one network. One that cannot be sent has no response: serving DHCP there returns
// the cause.
func (c *Config) probe(ctx context.Context, name string) (f *foundCluster) {
	cfg := dhcp.ClientConfig{Options: []dhcp.Option{dhcp.Text(dhcp.OptClass, probeClass)},
		Timeout: probeTimeout, Attempts: probeAttempts}
	err := dhcp.Inquire(ctx, name, cfg, func(l *dhcp.Lease) bool {
		if string(l.Options[dhcp.OptClass]) != probeClass {
			return false
		}
		var err error
		f, err = parseFound(l.Options[dhcp.OptVendor])
		return err == nil
	})
	if err != nil && !errors.Is(err, trivet.ErrUnavailable) {
		c.Log.Debug("cannot probe for another cluster", "interface", name, "error", err)
	}
	return f
}

// err returns the error of the probing head, which shows how to join the cluster.
func (f *foundCluster) err() error {
	join := "URL"
	if len(f.API) > 0 {
		join = strings.Join(f.API, ",")
	}
	return &trivet.Error{Op: "create a cluster",
		Err: fmt.Errorf("%w: cluster %.40q serves this network already, with %.40q at %q",
			trivet.ErrExists, f.Cluster, f.Head, f.API),
		Hint: fmt.Sprintf("to join it: get a token by 'trivet head token' there, and add --join %s --token TOKEN; "+
			"to create another cluster: add --new-cluster", join)}
}

// apiURL matches what may appear in a command that a person is to run: any program on the network may answer.
var apiURL = regexp.MustCompile(`^https://([0-9A-Za-z.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$`)

// parseFound parses a response. It drops each URL that is not that of an API.
func parseFound(text []byte) (*foundCluster, error) {
	var f foundCluster
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	f.API = slices.DeleteFunc(f.API, func(u string) bool { return !apiURL.MatchString(u) })
	return &f, nil
}

// maxOption is the size of one DHCP option, in bytes.
const maxOption = 255

// probeHandler answers probes, and passes all other requests on.
type probeHandler struct {
	next     dhcp.Handler
	response foundCluster
}

func (h *probeHandler) ServeDHCP(ctx context.Context, r *dhcp.Packet) *dhcp.Reply {
	if r.Type() != dhcp.Inform || string(r.Option(dhcp.OptClass)) != probeClass {
		return h.next.ServeDHCP(ctx, r)
	}
	f := h.response
	text, err := json.Marshal(f)
	if len(text) > maxOption {
		f.API = f.API[:1]
		text, err = json.Marshal(f)
	}
	if err != nil || len(text) > maxOption {
		return nil
	}
	reply := &dhcp.Reply{Type: dhcp.Ack, Server: r.Local}
	reply.Add(dhcp.Text(dhcp.OptClass, probeClass), dhcp.Option{Code: dhcp.OptVendor, Value: text})
	return reply
}
