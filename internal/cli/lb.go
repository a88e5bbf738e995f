package cli

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// lb prints configurations for load balancers. None is needed: clients, agents and boot scripts know all heads.
func (a *app) lb() *cobra.Command {
	c := &cobra.Command{
		Use: "lb", Short: "Print a load balancer's configuration",
		Long: "Print a load balancer's configuration. Trivet needs none: clients, agents and boot scripts know all heads. It is for\n" +
			"sites where everything goes through one, and for one address that people can remember.",
	}
	c.AddCommand(a.haproxy())
	return c
}

func (a *app) haproxy() *cobra.Command {
	var ports struct{ API, Boot int }
	c := &cobra.Command{
		Use:   "haproxy",
		Short: "Print a configuration for HAProxy, from the heads as they are now",
		Long: "Print a configuration for HAProxy 2.x, from the heads as they are now; print it again when heads join or leave. TLS\n" +
			"passes through, so that clients and agents know the cluster by its own CA, and no request sticks to a head. Run heads\n" +
			"with --drain 3s: a head that stops then tells HAProxy first.",
		Example: "  trivet lb haproxy > /etc/haproxy/haproxy.cfg && systemctl reload haproxy",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := a.connect()
			if err != nil {
				return err
			}
			heads, _, err := client.Of[trivet.Head](cl).List(cmd.Context(), client.ListOptions{})
			if err != nil {
				return err
			}
			return writeHAProxy(a.Out, heads, ports.API, ports.Boot)
		},
	}
	c.Flags().IntVar(&ports.API, "api-port", 7480, "HAProxy's own port for the API")
	c.Flags().IntVar(&ports.Boot, "boot-port", 7481, "HAProxy's own port for machines that boot")
	return c
}

var haproxy = template.Must(template.New("haproxy").Parse(`# Made by 'trivet lb haproxy'.
defaults
  timeout connect 2s
  timeout client 1h            # watches are long
  timeout server 1h
  option redispatch 1
  retries 3

frontend trivet-api
  mode tcp
  bind :{{.APIPort}}
  default_backend trivet-api

backend trivet-api
  mode tcp                     # TLS ends at the heads
  balance leastconn
  option httpchk GET /readyz
  http-check expect status 200
  default-server check check-ssl verify none inter 500ms fall 2 rise 2
{{- range .API}}
  server {{.Name}} {{.Address}}
{{- end}}

frontend trivet-boot
  mode http
  bind :{{.BootPort}}
  default_backend trivet-boot

backend trivet-boot
  mode http
  balance roundrobin
  option httpchk GET /livez
  http-check expect status 200
  default-server check inter 500ms fall 2 rise 2
{{- range .Boot}}
  server {{.Name}} {{.Address}}
{{- end}}
`))

// upstream is one head as a load balancer knows it.
type upstream struct{ Name, Address string }

func writeHAProxy(w io.Writer, heads []*trivet.Head, apiPort, bootPort int) error {
	var api, boot []upstream
	for _, h := range heads {
		if !h.Serves() {
			continue
		}
		api, boot = append(api, upstreams(h.Name, h.Status.API)...), append(boot, upstreams(h.Name, h.Status.Boot)...)
	}
	if len(api) == 0 {
		return &trivet.Error{Op: "print configuration", Err: fmt.Errorf("%w: no head serves", trivet.ErrNotFound)}
	}
	return haproxy.Execute(w, map[string]any{"APIPort": apiPort, "BootPort": bootPort, "API": api, "Boot": boot})
}

// upstreams names a head's first address after it, and more addresses with a number.
func upstreams(name string, urls []string) (list []upstream) {
	for i, text := range urls {
		u, err := url.Parse(text)
		if err != nil || strings.ContainsAny(u.Host, " \t\n#'\"\\") {
			continue
		}
		server := name
		if i > 0 {
			server = fmt.Sprint(name, "-", i+1)
		}
		list = append(list, upstream{server, u.Host})
	}
	return list
}
