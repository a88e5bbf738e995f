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

// The simulated firmware: iPXE as far as Trivet's scripts need it.

// askDHCP gets an address as iPXE does, through a relay of the machine's own (RFC 8357), and gives the script's URL.
func (m *Machine) askDHCP(ctx context.Context) (scriptURL string, err error) {
	var lc net.ListenConfig
	conn, err := lc.ListenPacket(ctx, "udp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer conn.Close()
	server, err := net.ResolveUDPAddr("udp4", m.DHCP)
	if err != nil {
		return "", err
	}
	mac, err := net.ParseMAC(m.MAC)
	if err != nil {
		return "", err
	}
	lease, err := dhcp.Exchange(ctx, conn, server, dhcp.ClientConfig{
		MAC: mac, Relay: netip.MustParseAddr("127.0.0.1"),
		Options: []dhcp.Option{
			dhcp.Text(dhcp.OptClass, "PXEClient:Arch:00000:UNDI:002001"),
			dhcp.Text(dhcp.OptUserClass, "iPXE"),
			{Code: dhcp.OptArch, Value: []byte{0, 0}},
		},
	})
	if err != nil {
		return "", err
	}
	return lease.BootFile, nil
}

type scriptKind int

const (
	hold scriptKind = iota
	bootDisk
	bootAgent
)

// script is what one of Trivet's boot scripts comes to.
type script struct {
	kind  scriptKind
	files []string // URLs of kernel and initramfs
	args  string   // the kernel's command line
}

func fetchScript(ctx context.Context, url string) (script, error) {
	text, err := get(ctx, url, 64<<10)
	if err != nil {
		return script{}, err
	}
	return parseScript(string(text)), nil
}

func parseScript(text string) script {
	var s script
	for line := range strings.Lines(text) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), " ||")
		words := strings.Fields(command)
		switch {
		case len(words) == 0:
		case words[0] == "imgfetch":
			s.files = append(s.files, words[len(words)-1])
		case words[0] == "boot" && len(words) > 1:
			s.kind, s.args = bootAgent, strings.Join(words[2:], " ")
		case words[0] == "sanboot":
			s.kind = bootDisk
		}
	}
	return s
}

func fetchFile(ctx context.Context, url string) error {
	_, err := get(ctx, url, 64<<20)
	return err
}

func get(ctx context.Context, url string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return do(req, limit)
}

func do(req *http.Request, limit int64) ([]byte, error) {
	resp, err := http.DefaultClient.Do(req)
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

// phoneHomeOf reads where the installed system shall phone home, from the seed on its disk.
func phoneHomeOf(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "var/lib/cloud/seed/nocloud/vendor-data"))
	if err != nil {
		return "", err
	}
	_, body, _ := strings.Cut(string(text), "\n")
	var vendor struct {
		PhoneHome struct {
			URL string `json:"url"`
		} `json:"phone_home"`
	}
	if err := json.Unmarshal([]byte(body), &vendor); err != nil {
		return "", fmt.Errorf("vendor-data: %w", err)
	}
	if vendor.PhoneHome.URL == "" {
		return "", fmt.Errorf("vendor-data has no phone_home")
	}
	return vendor.PhoneHome.URL, nil
}

func phoneHome(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("instance_id=lab&hostname=lab"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	_, err = do(req, 64<<10)
	return err
}
