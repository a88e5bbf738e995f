package trivet_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// withInterfaces returns a machine with two ports and these interfaces.
func withInterfaces(t *testing.T, interfaces string) *trivet.Machine {
	t.Helper()
	m := &trivet.Machine{Meta: trivet.Meta{Name: "m1"}}
	const nics = `{"mac":"52:54:00:00:00:01","address":"10.0.0.11"},{"mac":"52:54:00:00:00:02"}`
	text := fmt.Sprintf(`{"nics":[%s],"interfaces":[%s]}`, nics, interfaces)
	if err := json.Unmarshal([]byte(text), &m.Spec); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

const (
	lan0 = `{"name":"lan0","mac":"52:54:00:00:00:01"},`
	lan1 = `{"name":"lan1","mac":"52:54:00:00:00:02"},`
	ok0  = lan0 + lan1 + `{"name":"bond0","bond":{"ports":["lan0","lan1"],"mode":"802.3ad"}},`
)

// A machine's interfaces are checked by themselves and against each other, and each error says what to write.
func TestInterfacesAreValidated(t *testing.T) {
	port := func(fields string) string { return `{"name":"lan0","mac":"52:54:00:00:00:01",` + fields + `}` }
	bond := func(fields string) string { return lan0 + lan1 + `{"name":"b","bond":{` + fields + `}}` }
	vlan := func(fields string) string { return ok0 + `{"name":"v",` + fields + `}` }
	two := func(a, b int) string { // interfaces with so many addresses
		addresses := func(network, n int) string {
			var all []string
			for i := range n {
				all = append(all, fmt.Sprintf(`"10.%d.0.%d/24"`, network, i+1))
			}
			return `"addresses":[` + strings.Join(all, ",") + `]`
		}
		return fmt.Sprintf(`{"name":"x","mac":"52:54:00:00:00:01",%s},{"name":"y","mac":"52:54:00:00:00:02",%s}`,
			addresses(1, a), addresses(2, b))
	}
	for name, c := range map[string]struct{ interfaces, want string }{
		"none": {"", ""},
		"all": {vlan(`"vlan":{"link":"bond0","id":4094},"addresses":["10.20.0.11/24"],"gateway":"10.20.0.1"`),
			""},
		"too many addresses": {two(17, 16), "spec.interfaces have 33 addresses in all; at most 32"},
		"many addresses":     {two(16, 16), ""},
		"no name":            {`{"mac":"52:54:00:00:00:01"}`, "interfaces[0].name is missing; write one such as lan0, bond0"},
		"long name":          {`{"name":"a234567890123456","mac":"52:54:00:00:00:01"}`, "has 16 bytes; write one of at most 15"},
		"longest":            {`{"name":"a23456789012345","mac":"52:54:00:00:00:01"}`, ""},
		"slash":              {`{"name":"a/b","mac":"52:54:00:00:00:01"}`, `"a/b" must begin with a letter`},
		"number":             {`{"name":"20","mac":"52:54:00:00:00:01"}`, `"20" must begin with a letter`},
		"reserved":           {`{"name":"all","mac":"52:54:00:00:00:01"}`, `"all" is reserved; write another one, such as lan0`},
		"kernel's": {`{"name":"eth3","mac":"52:54:00:00:00:01"}`,
			`gives to any port; write another one, such as lan3`},
		"twice":   {lan0 + `{"name":"lan0","mac":"52:54:00:00:00:02"}`, `interfaces[1].name "lan0" appears twice`},
		"nothing": {`{"name":"x"}`, "spec.interfaces[0] must have one of mac, for a port, bond and vlan"},
		"two kinds": {port(`"vlan":{"link":"lan0","id":2}`),
			"spec.interfaces[0] must have one of mac, for a port, bond"},
		"wrong MAC":   {`{"name":"x","mac":"52:54"}`, `"52:54" is not a MAC address; write 52:54:00:12:34:56`},
		"form of MAC": {`{"name":"x","mac":"52-54-00-00-00-01"}`, `must be written "52:54:00:00:00:01"`},
		"other MAC": {`{"name":"x","mac":"52:54:00:00:00:03"}`,
			"52:54:00:00:00:03 is no port of this machine; add it to spec.nics, or write one of 52:54:00:00:00:01, 52:5"},
		"MAC twice": {lan0 + `{"name":"x","mac":"52:54:00:00:00:01"}`, "is the port of interface lan0 already"},

		"mode": {bond(`"ports":["lan0"],"mode":"lacp"`),
			`interfaces[2].bond.mode "lacp" must be one of balance-rr, ac`},
		"no mode": {bond(`"ports":["lan0"]`),
			"bond.mode is missing; it is one of balance-rr, active-backup, balance-xo"},
		"no ports": {bond(`"mode":"802.3ad"`),
			"bond.ports is missing; write the names of the interfaces that are its"},
		"unknown port": {bond(`"ports":["lan7"],"mode":"802.3ad"`),
			`ports[0] names interface "lan7", which does not exist;`},
		"own port": {bond(`"ports":["b"],"mode":"802.3ad"`),
			"bond.ports[0] names b, which is no port; a bond consists"},
		"port twice": {bond(`"ports":["lan0","lan0"],"mode":"802.3ad"`), `bond.ports[1] "lan0" appears twice`},
		"two bonds": {ok0 + `{"name":"b","bond":{"ports":["lan0"],"mode":"802.3ad"}}`,
			"interfaces[3].bond.ports[0] names lan0, which is a port of bond0; a port is in one bond"},
		"rate": {bond(`"ports":["lan0"],"mode":"802.3ad","lacpRate":"1s"`),
			`lacpRate "1s" must be one of slow, fast`},
		"rate's mode": {bond(`"ports":["lan0"],"mode":"balance-rr","lacpRate":"fast"`),
			"lacpRate is for mode 802.3ad only"},
		"hash's mode": {bond(`"ports":["lan0"],"mode":"balance-rr","hashPolicy":"layer2"`),
			"hashPolicy is for modes balance-"},
		"bonded with settings": {port(`"mtu":9000,"dhcp":true`) + `,{"name":"b","bond":{"ports":["lan0"],"mode":"802.3ad"}}`,
			"spec.interfaces[0].mtu must not be set for a port of a bond; write it in interface b\n" +
				"spec.interfaces[0].dhcp must not be set for a port of a bond; write it in interface b"},

		"ID 0":    {vlan(`"vlan":{"link":"bond0"}`), "interfaces[3].vlan.id is 0; write the VLAN's ID, 1 to 4094"},
		"ID 4095": {vlan(`"vlan":{"link":"bond0","id":4095}`), "vlan.id is 4095; write the VLAN's ID, 1 to 4094"},
		"no link": {vlan(`"vlan":{"id":2}`), "vlan.link is missing; write the name of the port or bond that it is on"},
		"cycle": {vlan(`"vlan":{"link":"v","id":2}`),
			"vlan.link names v, which is a VLAN; write the port or bond that"},
		"unknown": {vlan(`"vlan":{"link":"x","id":2}`),
			`vlan.link names interface "x", which does not exist; add it to sp`},
		"bonded": {vlan(`"vlan":{"link":"lan1","id":2}`),
			"vlan.link names lan1, which is a port of bond0; write bond0"},
		"ID twice": {vlan(`"vlan":{"link":"bond0","id":2}},{"name":"w","vlan":{"link":"bond0","id":2}`),
			"2 on bond0 is interface v"},
		"MTU": {port(`"mtu":70000`), "spec.interfaces[0].mtu is 70000; 576 to 65535"},
		"MTU of a VLAN": {vlan(`"vlan":{"link":"bond0","id":2},"mtu":9000`),
			"interfaces[3].mtu is 9000, which is more than bond0 has; write mtu: 9000 there, too"},

		"network": {port(`"addresses":["10.20.0.0/24"]`),
			"addresses[0] 10.20.0.0/24 is no address of a host: an end of its"},
		"broadcast": {port(`"addresses":["10.20.0.255/24"]`),
			"addresses[0] 10.20.0.255/24 is no address of a host: an end"},
		"point": {port(`"addresses":["10.20.0.0/31"],"gateway":"10.20.0.1"`), ""},
		"IPv6": {port(`"addresses":["fd00::7/64"]`),
			"fd00::7/64 is not IPv4; for IPv6 write spec.networkData of the prov"},
		"same":      {port(`"addresses":["10.20.0.7/24","10.20.0.7/16"]`), "addresses[1] 10.20.0.7 appears twice"},
		"own fixed": {port(`"addresses":["10.0.0.11/24"]`), ""},
		"its port's": {ok0 + `{"name":"v","vlan":{"link":"bond0","id":2},"addresses":["10.0.0.11/24"]}`,
			"10.0.0.11 is the address of spec.nics[0], another port"},
		"DHCP": {port(`"addresses":["10.20.0.7/24"],"dhcp":true`),
			"interfaces[0].dhcp excludes addresses; write one of them"},
		"no address": {port(`"dhcp":true,"noAddress":true`), "noAddress excludes dhcp and addresses; write one of them"},
		"gateway": {port(`"addresses":["10.20.0.7/24"],"gateway":"10.21.0.1"`),
			"interfaces[0].gateway 10.21.0.1 is not in 10.20.0.0/24; write the address of the router in that subnet"},
		"own gateway": {port(`"addresses":["10.20.0.7/24"],"gateway":"10.20.0.7"`),
			"gateway 10.20.0.7 is the interface itself; write the address of the router"},
		"gateway only": {port(`"gateway":"10.20.0.1"`),
			"interfaces[0].gateway needs addresses: where an interface has none"},
		"route": {port(`"addresses":["10.20.0.7/24"],"routes":[{"to":"10.9.0.0/16","via":"10.20.0.1","metric":5}]`),
			""},
		"boot's route": {port(`"routes":[{"to":"10.9.0.0/16","via":"10.0.0.1"}]`), ""},
		"bits": {port(`"routes":[{"to":"10.9.1.0/16","via":"10.0.0.1"}]`),
			"has bits set after its prefix; write 10.9.0.0/16"},
		"no destination": {port(`"routes":[{"via":"10.0.0.1"}]`),
			"routes[0].to is missing; write a subnet such as 10.30.0.0/16"},
		"no router": {port(`"routes":[{"to":"10.9.0.0/16"}]`),
			"routes[0].via is missing; write the address of the router"},
		"far router": {port(`"addresses":["10.20.0.7/24"],"routes":[{"to":"10.9.0.0/16","via":"10.0.0.1"}]`),
			"routes[0].via 10.0.0.1 is not in 10.20.0.0/24; write the address of the router in that subnet"},
		"route of nothing": {vlan(`"vlan":{"link":"bond0","id":2},"routes":[{"to":"10.9.0.0/16","via":"10.0.0.1"}]`),
			"interfaces[3].routes need addresses or dhcp: without an address no router is reached"},
		"two defaults": {lan0 + `{"name":"x","mac":"52:54:00:00:00:02","addresses":["10.20.0.7/24"],"gateway":"10.20.0.1"},` +
			`{"name":"y","vlan":{"link":"x","id":2},"addresses":["10.21.0.7/24"],` +
			`"routes":[{"to":"0.0.0.0/0","via":"10.21.0.1"}]}`,
			"interfaces[2].routes[0].to is a second route to 0.0.0.0/0 with metric 0, beside that of interface x; write rou"},
		"DNS": {port(`"dns":["fd00::1"]`), "interfaces[0].dns[0] fd00::1 is not an IPv4 address"},
		"domain": {port(`"domain":"a b"`),
			`interfaces[0].domain "a b" is no DNS domain; write one such as lab.example.org`},
	} {
		err := withInterfaces(t, strings.TrimSuffix(c.interfaces, ",")).Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// An address of an interface belongs to a port: of a bond its first one, of a VLAN that of what it is on.
func TestPortOfAnAddress(t *testing.T) {
	m := withInterfaces(t, ok0+`{"name":"v","vlan":{"link":"bond0","id":2},"addresses":["10.20.0.11/24","10.0.0.11/24"]},`+
		`{"name":"loop","vlan":{"link":"loop","id":2},"addresses":["10.21.0.1/24"]}`)
	for a, want := range map[string]string{"10.0.0.11": "52:54:00:00:00:01", "10.20.0.11": "52:54:00:00:00:01",
		"10.21.0.1": "", "10.9.9.9": ""} {
		if got := m.PortOf(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %q, want %q", a, got, want)
		}
	}
	var all []string
	for _, a := range m.FixedAddresses() {
		all = append(all, a.String())
	}
	if want := []string{"10.0.0.11", "10.20.0.11", "10.21.0.1"}; !slices.Equal(all, want) {
		t.Errorf("%v, want %v", all, want)
	}
}
