package trivet

import (
	"fmt"
	"slices"
	"testing"
)

// Two BMCs that power one machine are found to be the same however their addresses are written, and no others are.
func TestSameBMC(t *testing.T) {
	t.Parallel()
	ipmi := func(address string) *BMC { return &BMC{Protocol: "ipmi", Address: address, Secret: "bmc"} }
	redfish := func(address string) *BMC { return &BMC{Protocol: "redfish", Address: address, Secret: "bmc"} }
	exec := func(command, address, secret string) *BMC {
		return &BMC{Protocol: "exec", Command: command, Address: address, Secret: secret}
	}
	for name, c := range map[string]struct {
		a, b *BMC
		same bool
	}{
		"the same":             {ipmi("10.0.8.9"), ipmi("10.0.8.9"), true},
		"default port":         {ipmi("10.0.8.9"), ipmi("10.0.8.9:623"), true},
		"zeros in a port":      {ipmi("bmc1:0623"), ipmi("bmc1"), true},
		"another host":         {ipmi("10.0.8.9"), ipmi("10.0.8.8"), false},
		"another port":         {ipmi("10.0.8.9:6230"), ipmi("10.0.8.9:6231"), false},
		"upper case, dot":      {ipmi("BMC1.example.org."), ipmi("bmc1.Example.org"), true},
		"IPv6":                 {ipmi("fd00::9"), ipmi("[fd00:0::9]:623"), true},
		"IPv6, brackets":       {ipmi("[fd00::9]"), ipmi("fd00::9"), true},
		"IPv6, another port":   {ipmi("[fd00::9]:6230"), ipmi("fd00::9"), false},
		"mapped IPv4":          {redfish("[::ffff:10.0.8.9]:443"), redfish("10.0.8.9"), true},
		"both protocols":       {ipmi("10.0.8.9"), redfish("https://10.0.8.9"), true},
		"both, with a system":  {ipmi("10.0.8.9"), redfish("10.0.8.9/redfish/v1/Systems/1"), true},
		"UDP and TCP ports":    {ipmi("10.0.8.9:8000"), redfish("10.0.8.9:8000"), false},
		"URL":                  {redfish("HTTPS://10.0.8.9:443/"), redfish("10.0.8.9"), true},
		"HTTP":                 {redfish("http://10.0.8.9:80"), redfish("https://10.0.8.9"), true},
		"HTTP at 443":          {redfish("http://10.0.8.9:443"), redfish("https://10.0.8.9"), false},
		"another system":       {redfish("10.0.8.9/redfish/v1/Systems/1"), redfish("10.0.8.9/redfish/v1/Systems/2"), false},
		"the same system":      {redfish("10.0.8.9/redfish/v1/Systems/1"), redfish("https://10.0.8.9/redfish/v1/Systems/1/"), true},
		"the only system":      {redfish("10.0.8.9"), redfish("10.0.8.9/redfish/v1/Systems/1"), true},
		"the root":             {redfish("https://10.0.8.9/redfish/v1/"), redfish("10.0.8.9"), true},
		"a program":            {exec("plug", "10.0.8.9", "bmc"), exec("plug", "10.0.8.9", "default/bmc"), true},
		"another outlet":       {exec("plug", "10.0.8.9:1", "bmc"), exec("plug", "10.0.8.9:2", "bmc"), false},
		"another user":         {exec("plug", "10.0.8.9", "bmc1"), exec("plug", "10.0.8.9", "bmc2"), false},
		"another program":      {exec("plug", "10.0.8.9", "bmc"), exec("pdu", "10.0.8.9", "bmc"), false},
		"a program and a BMC":  {exec("plug", "10.0.8.9", "bmc"), ipmi("10.0.8.9"), false},
		"a system's own names": {redfish("10.0.8.9/redfish/v1/Systems/a"), redfish("10.0.8.9/redfish/v1/Systems/A"), false},
	} {
		if c.a.SameAs(c.b) != c.same || c.b.SameAs(c.a) != c.same {
			t.Errorf("%s: want %v", name, c.same)
		}
		if finds(c.a, c.b) != c.same || finds(c.b, c.a) != c.same {
			t.Errorf("%s: found by its keys: want %v", name, c.same)
		}
	}
}

func TestBMCHost(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.0.8.9": "10.0.8.9", "10.0.8.9:623": "10.0.8.9", "bmc1:623": "bmc1", "fd00::9": "fd00::9",
		"[fd00::9]": "fd00::9", "[fd00:0::9]:623": "fd00::9", "https://bmc1:8443/redfish/v1/Systems/1": "bmc1",
		"https://u:p@bmc1": "bmc1", "": "", "https://": "",
	} {
		if got := (&BMC{Address: address}).Host(); got != want {
			t.Errorf("%q: %q; want %q", address, got, want)
		}
	}
}

// finds reports whether a BMC is found by the keys of those that are the same as another.
func finds(b, other *BMC) bool {
	own, _ := b.Keys()
	_, same := other.Keys()
	return slices.ContainsFunc(own, func(key string) bool { return slices.Contains(same, key) })
}

// However many machines have the systems of one Redfish service, the BMC of a further one is compared with none of
// them.
func TestBMCsOfOneService(t *testing.T) {
	t.Parallel()
	at := func(system int) *BMC {
		return &BMC{Protocol: "redfish", Address: fmt.Sprint("10.0.8.9/redfish/v1/Systems/", system), Secret: "bmc"}
	}
	for i := range 100 {
		if finds(at(i), at(100)) {
			t.Fatalf("system %d is found", i)
		}
	}
}
