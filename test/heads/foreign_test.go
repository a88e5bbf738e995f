package heads_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
)

// A DHCP server of another program in a network of the cluster is found without a client that accepts its offer. It is
// an event with its address and MAC; the other head, which answers as well, is none.
func TestForeignServerIsFound(t *testing.T) {
	ports := switched(t, 3)
	foreign, err := testhead.Start(testhead.Command(ports[2], "dnsmasq", "--no-daemon", "--conf-file=/dev/null",
		"--port=0", "--interface=eth0", "--bind-interfaces", "--dhcp-range=10.99.1.200,10.99.1.210", "--dhcp-authoritative",
		"--dhcp-leasefile="+t.TempDir()+"/leases", "--user=root", "--pid-file="))
	if err != nil {
		t.Fatalf("%v (apt-get install dnsmasq-base)", err)
	}
	t.Cleanup(foreign.Kill)
	var h0 *head
	for i, port := range ports[:2] {
		h := newHead(t, fmt.Sprint("head", i))
		h.Address = fmt.Sprintf("10.99.1.%d", 10+i)
		flags := []string{"--dhcp", "eth0", "--tftp", "", "--new-cluster"}
		if i > 0 {
			flags = []string{"--dhcp", "eth0", "--tftp", "", "--join", h0.API(), "--token", h0.token()}
		}
		h.StartIn(port, flags...)
		h.AwaitReady()
		if i == 0 {
			h0 = h
		}
		h0.awaitMember(h.Name)
	}
	h0.Apply("kind: Network\nname: lan\nspec: {cidr: 10.99.1.0/24, ranges: [{from: 10.99.1.100, to: 10.99.1.150}]}\n")
	mac, err := exec.Command("ip", "netns", "exec", ports[2], "cat", "/sys/class/net/eth0/address").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("the DHCP server 10.99.1.12 answers in this network, from the MAC %s,",
		strings.TrimSpace(string(mac)))
	h0.Await("an event of the other server", func() error {
		events := h0.MustTrivet("get", "events", "-o", "json")
		if !strings.Contains(events, want) {
			return fmt.Errorf("the events are %s", events)
		}
		return nil
	})
	if events := h0.MustTrivet("get", "events", "-o", "json"); strings.Count(events, "ForeignDHCPServer") != 1 {
		t.Errorf("the events are %s", events)
	}
}
