package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/trivet-project/trivet/internal/dhcp"
)

// The simulated firmware: the part of iPXE that Trivet's scripts use.

// requestLease requests an address as iPXE does, through a relay (RFC 8357).
func (m *Machine) requestLease(ctx context.Context) (lease *dhcp.Lease, err error) {
	for _, address := range m.DHCP {
		if lease, err = m.dhcpRequest(ctx, address); err == nil || ctx.Err() != nil {
			break
		}
	}
	return lease, err
}

// clientAt returns a client that sends from an address: a boot script is for the holder of the machine's lease.
func clientAt(a netip.Addr) *http.Client {
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))}
	return &http.Client{Timeout: http.DefaultClient.Timeout, Transport: &http.Transport{DialContext: dialer.DialContext}}
}

func (m *Machine) dhcpRequest(ctx context.Context, address string) (*dhcp.Lease, error) {
	var lc net.ListenConfig
	relay := m.Relay
	if !relay.IsValid() {
		relay = netip.MustParseAddr("127.0.0.1")
	}
	conn, err := lc.ListenPacket(ctx, "udp4", netip.AddrPortFrom(relay, 0).String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	server, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(m.MAC)
	if err != nil {
		return nil, err
	}
	return dhcp.Exchange(ctx, conn, server, dhcp.ClientConfig{
		MAC: mac, Relay: relay,
		Options: []dhcp.Option{
			dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"),
			dhcp.Text(dhcp.OptUserClass, "iPXE"),
			{Code: dhcp.OptArch, Value: []byte{0, 0}},
		},
	})
}

type scriptKind int

const (
	hold scriptKind = iota
	bootDisk
	bootAgent
)

// script is a parsed boot script.
type script struct {
	kind  scriptKind
	files [][]string // kernel and initramfs: URLs of each, in the order to try
	args  string     // the kernel's command line
}

func fetchScript(ctx context.Context, c *http.Client, url string) (script, error) {
	text, err := get(ctx, c, url, 64<<10)
	if err != nil {
		return script{}, err
	}
	return parseScript(string(text)), nil
}

func parseScript(text string) script {
	var s script
	var head, last string
	for line := range strings.Lines(text) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), " ||")
		words := strings.Fields(command)
		switch {
		case len(words) == 0:
		case words[0] == "set":
			head = words[2]
		case words[0] == "imgfetch":
			if name := words[2]; name != last {
				s.files, last = append(s.files, nil), name
			}
			n := len(s.files) - 1
			s.files[n] = append(s.files[n], strings.Replace(words[5], "${head}", head, 1))
		case words[0] == "boot" && len(words) > 1:
			s.kind, s.args = bootAgent, strings.Join(words[2:], " ")
		case words[0] == "sanboot":
			s.kind = bootDisk
		}
	}
	return s
}

// fetchFile fetches a file from the first URL that works.
func fetchFile(ctx context.Context, c *http.Client, urls []string) (file []byte, err error) {
	for _, url := range urls {
		if file, err = get(ctx, c, url, 64<<20); err == nil {
			return file, nil
		}
	}
	return nil, err
}

func get(ctx context.Context, c *http.Client, url string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(c, req, limit)
}

func do(c *http.Client, req *http.Request, limit int64) ([]byte, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s", req.Method, req.URL.Path, resp.Status)
	}
	return body, err
}

// phoneHomeOf reads from the seed on the disk the URLs that the installed system calls at its first boot.
func phoneHomeOf(root string) (urls []string, err error) {
	text, err := os.ReadFile(filepath.Join(root, "var/lib/cloud/seed/nocloud/vendor-data"))
	if err != nil {
		return nil, err
	}

	_, list, _ := strings.Cut(string(text), "\nURLS = ")
	list, _, _ = strings.Cut(list, "\n")
	if err := json.Unmarshal([]byte(list), &urls); err != nil || len(urls) == 0 {
		return nil, fmt.Errorf("vendor-data does not phone home: %v", err)
	}
	return urls, nil
}

// phoneHome posts to the first URL that works.
func phoneHome(ctx context.Context, urls []string) (err error) {
	for _, url := range urls {
		var req *http.Request
		if req, err = http.NewRequestWithContext(ctx, http.MethodPost, url, http.NoBody); err != nil {
			return err
		}
		if _, err = do(http.DefaultClient, req, 64<<10); err == nil {
			return nil
		}
	}
	return err
}
