package netconfig_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/netconfig"
)

// readConfig lets cloud-init itself read a configuration, and write it for ifupdown as it does on Debian.
const readConfig = `
import json, os, sys
from cloudinit.net import eni, network_state
config = json.load(sys.stdin)
state = network_state.parse_net_config_data(config, skip_broken=False)
r = eni.Renderer({"eni_path": "/interfaces", "eni_header": "", "links_path_prefix": None, "netrules_path": None})
r.render_network_state(state, target=sys.argv[1])
sys.stdout.write(open(sys.argv[1] + "/interfaces").read())
`

func run(t *testing.T, in []byte, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(string(in))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s (scripts/deps installs it): %v: %s\n%s", name, err, out, in)
	}
	return string(out)
}

// networkd returns the files that netplan makes of a configuration, without what is the same for all.
func networkd(t *testing.T, config []byte) string {
	t.Helper()
	root := t.TempDir()
	file := filepath.Join(root, "etc/netplan/50-cloud-init.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	text := append([]byte(`{"network": `), append(config, '}')...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := run(t, nil, "netplan", "generate", "--root-dir", root); out != "" {
		t.Errorf("netplan warns: %s", out)
	}
	files, err := filepath.Glob(root + "/run/systemd/network/*")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString("# " + strings.TrimPrefix(filepath.Base(f), "10-netplan-") + "\n")
		for line := range strings.Lines(string(text)) {
			if strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "WakeOnLan=") {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

const interfaces = `[
	{"name": "lan0", "mac": "52:54:00:00:00:01"},
	{"name": "lan1", "mac": "52:54:00:00:00:02"},
	{"name": "bond0", "mtu": 9000, "domain": "own.test",
		"bond": {"ports": ["lan0", "lan1"], "mode": "802.3ad", "lacpRate": "fast", "hashPolicy": "layer3+4"},
		"routes": [{"to": "10.9.0.0/16", "via": "10.0.0.9", "metric": 50}]},
	{"name": "storage", "vlan": {"link": "bond0", "id": 20}, "mtu": 9000, "addresses": ["10.20.0.11/24"],
		"dns": ["10.20.0.2", "10.20.0.3"], "domain": "storage.test"},
	{"name": "spare", "mac": "52:54:00:00:00:03"}
]`

var boot = &trivet.RunNetwork{MAC: "52:54:00:00:00:02", Address: "10.0.0.7/24", Gateway: "10.0.0.1",
	DNS: []string{"10.0.0.2"}, Domain: "lab.test", MTU: 1400}

func decode(t *testing.T, text string) (all []trivet.Interface) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// A bond of two ports with the address of the boot port, and a VLAN on it, as netplan and cloud-init understand them.
func TestBondAndVLAN(t *testing.T) {
	config := netconfig.Render(decode(t, interfaces), boot)
	golden(t, "bond.json", string(config))
	golden(t, "bond.networkd", networkd(t, config))
	golden(t, "bond.interfaces", run(t, config, "/usr/bin/python3", "-c", readConfig, t.TempDir()))
}

// golden compares a text with a file, which UPDATE=1 writes.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// What the boot port has, and where, as netplan understands it.
func TestBootPort(t *testing.T) {
	const port = `{"name": "lan0", "mac": "52:54:00:00:00:01"}`
	dhcp := &trivet.RunNetwork{MAC: boot.MAC}
	for name, c := range map[string]struct {
		interfaces string
		boot       *trivet.RunNetwork
		has, lacks []string
	}{
		"no interface": {`[]`, boot, []string{"# boot.network", "MACAddress=52:54:00:00:00:02", "Address=10.0.0.7/24",
			"Gateway=10.0.0.1", "DNS=10.0.0.2", "Domains=lab.test", "MTUBytes=1400"}, []string{"\nName=", "RequiredForOnline"}},
		"of no interface": {"[" + port + "]", boot, []string{"# boot.network", "Address=10.0.0.7/24", "# lan0.network",
			"RequiredForOnline=no"}, nil},
		"not known":  {"[" + port + "]", nil, []string{"# lan0.network"}, []string{"# boot.network", "Address=1", "DHCP="}},
		"no address": {`[]`, dhcp, []string{"# boot.network", "DHCP=ipv4"}, []string{"\nAddress=", "Gateway="}},
		"a port": {`[{"name": "b", "mac": "52:54:00:00:00:02"}]`, boot,
			[]string{"Name=b", "Address=10.0.0.7/24"}, []string{"# boot"}},
		"port, DHCP": {`[{"name": "b", "mac": "52:54:00:00:00:02", "dhcp": true}]`, boot,
			[]string{"DHCP=ipv4"}, []string{"10.0.0"}},
		"other one": {`[{"name": "b", "mac": "52:54:00:00:00:02", "addresses": ["10.1.0.7/24"]}]`, boot,
			[]string{"Address=10.1.0.7/24"}, []string{"10.0.0", "Gateway"}},
		"none": {`[{"name": "b", "mac": "52:54:00:00:00:02", "noAddress": true}]`, boot,
			[]string{"RequiredForOnline=no"}, []string{"10.0.0", "DHCP="}},
		"own servers": {`[{"name": "b", "mac": "52:54:00:00:00:02", "dns": ["10.1.0.2"], "mtu": 1600}]`, boot,
			[]string{"DNS=10.1.0.2", "Domains=lab.test", "MTUBytes=1600"}, []string{"DNS=10.0.0.2", "1400"}},
		"other gateway": {`[{"name": "b", "mac": "52:54:00:00:00:02"}, {"name": "x", "mac": "52:54:00:00:00:01",` +
			`"addresses": ["10.1.0.7/24"], "gateway": "10.1.0.1"}]`, boot,
			[]string{"Address=10.0.0.7/24", "Address=10.1.0.7/24", "Destination=0.0.0.0/0\nGateway=10.1.0.1"},
			[]string{"10.0.0.1"}},
	} {
		config := netconfig.Render(decode(t, c.interfaces), c.boot)
		files := networkd(t, config)
		for _, text := range c.has {
			if !strings.Contains(files, text) {
				t.Errorf("%s: no %q in\n%s", name, text, files)
			}
		}
		for _, text := range c.lacks {
			if strings.Contains(files, text) {
				t.Errorf("%s: %q in\n%s", name, text, files)
			}
		}
	}
	if text := netconfig.Render(nil, nil); text != nil {
		t.Errorf("nothing is known: %s", text)
	}
}

// What a bond leaves out is as the reference has it, whatever the installed system does by default.
func TestBondDefaults(t *testing.T) {
	const lacp, hash = "LACPTransmitRate=slow", "TransmitHashPolicy=layer2\n"
	for mode, want := range map[string][2]bool{"802.3ad": {true, true}, "balance-xor": {false, true},
		"balance-tlb": {false, true}, "active-backup": {}} {
		b := trivet.Interface{Name: "b", Bond: &trivet.Bond{Ports: []string{"lan0"}, Mode: mode}}
		files := networkd(t, netconfig.Render([]trivet.Interface{{Name: "lan0", MAC: boot.MAC}, b}, boot))
		if got := [2]bool{strings.Contains(files, lacp), strings.Contains(files, hash)}; got != want {
			t.Errorf("%s: rate and hash policy %v, want %v\n%s", mode, got, want, files)
		}
	}
}

// Every mode of bonds that a machine may have is one that netplan knows.
func TestBondModes(t *testing.T) {
	for mode, want := range map[string]string{"balance-rr": "Mode=balance-rr", "active-backup": "Mode=active-backup",
		"balance-xor": "Mode=balance-xor", "broadcast": "Mode=broadcast", "802.3ad": "Mode=802.3ad",
		"balance-tlb": "Mode=balance-tlb", "balance-alb": "Mode=balance-alb"} {
		b := trivet.Interface{Name: "b", Bond: &trivet.Bond{Ports: []string{"lan0"}, Mode: mode}}
		m := trivet.Machine{Meta: trivet.Meta{Name: "m1"}, Spec: trivet.MachineSpec{
			NICs:       []trivet.NIC{{MAC: "52:54:00:00:00:01"}},
			Interfaces: []trivet.Interface{{Name: "lan0", MAC: "52:54:00:00:00:01"}, b}}}
		if err := m.Validate(); err != nil {
			t.Error(err)
		}
		config := netconfig.Render(m.Spec.Interfaces, boot)
		if files := networkd(t, config); !strings.Contains(files, want) {
			t.Errorf("%s: %s", mode, files)
		}
	}
}
