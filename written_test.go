package trivet_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

func withBMC(protocol, address string) *trivet.Machine {
	return &trivet.Machine{Meta: trivet.Meta{Kind: "Machine", Name: "m1"},
		Spec: trivet.MachineSpec{BMC: &trivet.BMC{Protocol: protocol, Address: address, Secret: "bmc"}}}
}

// What the clients of BMCs can use is accepted, and nothing that they cannot.
func TestAddressesOfBMCs(t *testing.T) {
	good := map[string][]string{
		"ipmi": {"10.0.8.9", "10.0.8.9:623", "fd00::9", "[fd00::9]:623", "bmc1", "bmc1.example.org.",
			"bmc1.example.org.:623"},
		"redfish": {"10.0.8.9", "10.0.8.9:8443", "[fd00::9]", "bmc1.example.org.", "bmc1.example.org.:8443",
			"bmc1:8443/redfish/v1/Systems/1", "10.0.8.9/redfish/v1/Systems/1", "HTTPS://10.0.8.9/redfish/v1/Systems/1",
			"https://[fd00::9]:8443/redfish/v1/Systems/1", "http://bmc1."},
	}
	for protocol, addresses := range good {
		for _, address := range addresses {
			m := withBMC(protocol, address)
			if err := trivet.ValidateWritten(m); err != nil {
				t.Errorf("%s %s: %v", protocol, address, err)
			}
			if host := m.Spec.BMC.Host(); strings.ContainsAny(host, "/@") || host == "" {
				t.Errorf("the host of %s is %q", address, host)
			}
		}
	}
	bad := map[string][]string{
		"ipmi": {".", "bmc1..", "10.0.8.9/redfish", "https://10.0.8.9", "10.0.8.9:0", "52:54:00:00:09:01",
			"10.0.8.300", "10.0.8", "0x0a000809", "bmc..lab", "bmc1.42", "0.0.0.0", "224.0.0.1", "[ff02::1]:623",
			strings.Repeat("a", 64) + ".lab"},
		"redfish": {".", "ftp://10.0.8.9", "https://10.0.8.9?a=b", "https:///redfish", "52:54:00:00:09:01", "bmc1:99999/redfish",
			"https://10.0.8.999/redfish/v1", "https://255.255.255.255"},
	}
	for protocol, addresses := range bad {
		for _, address := range addresses {
			if trivet.ValidateWritten(withBMC(protocol, address)) == nil {
				t.Errorf("%s %s is accepted", protocol, address)
			}
		}
	}
}

// A password in an address is in no message: messages are logged.
func TestPasswordInAnAddressIsNotQuoted(t *testing.T) {
	for _, protocol := range []string{"ipmi", "redfish", "exec"} {
		for _, address := range []string{"https://root:calvin@10.0.8.9", "root:calvin@10.0.8.9:443", "https://root:calvin@/x",
			"https://root:1/calvin@10.0.8.9", "ftp://root:calvin@10.0.8.9?x", "calvin@", "HTTP://root:cal vin@calvin/"} {
			err := trivet.ValidateWritten(withBMC(protocol, address))
			if err == nil || strings.Contains(err.Error(), "calvin") || strings.Contains(err.Error(), "vin@") {
				t.Errorf("%s %s: %v", protocol, address, err)
			}
		}
	}
}

// DHCP announces IPv4 servers only; the DNS servers are also those of the installed system.
func TestServersOfANetwork(t *testing.T) {
	six := []netip.Addr{netip.MustParseAddr("fd00::53")}
	n := &trivet.Network{Meta: trivet.Meta{Name: "lab"}, Spec: trivet.NetworkSpec{
		CIDR: netip.MustParsePrefix("10.0.0.0/24"), DNS: six}}
	if err := trivet.ValidateWritten(n); err != nil {
		t.Error(err)
	}
	n.Spec.NTP = six
	if err := trivet.ValidateWritten(n); err == nil || !strings.Contains(err.Error(), "spec.ntp[0] fd00::53 is not") {
		t.Error(err)
	}
}

func TestTypesOfKeys(t *testing.T) {
	const key = "AAAAC3NzaC1lZDI1NTE5AAAAIGJg"
	for line, good := range map[string]bool{
		"ssh-ed25519 " + key: true, "ssh-ed25519 AAAA root@h": true, `no-pty,from="h" ssh-rsa ` + key: true,
		"webauthn-sk-ecdsa-sha2-nistp256@openssh.com " + key: true, "x509v3-ssh-rsa " + key + "== root@h": true,
		"not a key": false, key + " root@h": false, "rsa AAAA": false, "rsa AAAA!C3NzaC1lZDI1NTE5": false,
	} {
		p := &trivet.Provision{Meta: trivet.Meta{Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m1", SSHKeys: []string{line}}}
		if err := trivet.ValidateWritten(p); (err == nil) != good {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The message is compared with that of the stored record, so it must always be the same.
func TestLabelsAreValidatedInOrder(t *testing.T) {
	labels := map[string]string{}
	for i := range 20 {
		labels[fmt.Sprint("wrong key ", i)] = "x"
	}
	want := trivet.ValidateLabels(labels).Error()
	for range 20 {
		if got := trivet.ValidateLabels(labels).Error(); got != want {
			t.Fatalf("%s\nand before:\n%s", got, want)
		}
	}
}
