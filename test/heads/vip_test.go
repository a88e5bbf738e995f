package heads_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A shared address that the host has configured itself is refused before anything is stored or served, and stays
// configured. One that a head of another cluster holds is not taken, and that head's MAC is logged.
func TestVIPIsInUse(t *testing.T) {
	t.Parallel()
	one, two := twoNamespaces(t)
	addresses := func(ns string) string {
		out, err := exec.Command("ip", "-n", ns, "-o", "-4", "address", "show", "dev", "boot0").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	start := func(h *head, ns, vip string) {
		h.StartIn(ns, "--vip", vip, "--vip-interface", "boot0", "--tftp", "")
	}
	first, second := newHead(t, "the first"), newHead(t, "the second")
	before := addresses(one)
	for vip, want := range map[string]string{
		"10.99.0.1/24": "10.99.0.1/24 on boot0", "10.77.0.9/24": "10.99.0.0/24", "10.99.0.255/32": "broadcast",
	} {
		start(first, one, vip)
		first.expectRefusal(want, "--vip")
		if after := addresses(one); after != before {
			t.Errorf("the addresses were\n%s\nand are\n%s", before, after)
		}
		if _, err := os.Stat(first.Dir + "/keys"); err == nil {
			t.Error("it has made keys")
		}
	}
	start(first, one, "10.99.0.9/24")
	first.AwaitLog("took the shared address")
	mac, err := exec.Command("ip", "netns", "exec", one, "cat", "/sys/class/net/boot0/address").Output()
	if err != nil {
		t.Fatal(err)
	}
	start(second, two, "10.99.0.9/24")
	second.AwaitLog(strings.TrimSpace(string(mac)))
	if strings.Contains(addresses(two), "10.99.0.9") {
		t.Error("two hosts have the address")
	}
	first.Stop()
	second.AwaitLog("took the shared address")
}
