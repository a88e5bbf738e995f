package heads_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A shared address that the box has by itself is refused before anything is stored or served, and stays. One that a head of
// another cluster has is not taken, and its MAC is told.
func TestVIPOfSomebodyElse(t *testing.T) {
	one, two := twoBoxes(t)
	addresses := func(ns string) string {
		out, err := exec.Command("ip", "-n", ns, "-o", "-4", "address", "show", "dev", "boot0").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	start := func(h *head, ns, vip string) {
		h.run(exec.Command("ip", "netns", "exec", ns, binary(t), "server", "--data-dir", h.dir, "--vip", vip, "--vip-interface", "boot0",
			"--tftp", "", "--ipxe", h.programs()))
	}
	first, second := newHead(t, "the first"), newHead(t, "the second")
	before := addresses(one)
	for vip, says := range map[string]string{"10.99.0.1/24": "10.99.0.1/24 on boot0", "10.77.0.9/24": "10.99.0.0/24", "10.99.0.255/32": "broadcast"} {
		start(first, one, vip)
		first.refused(says, "--vip")
		if after := addresses(one); after != before {
			t.Errorf("the box had\n%s\nand has\n%s", before, after)
		}
		if _, err := os.Stat(first.dir + "/keys"); err == nil {
			t.Error("it has made keys")
		}
	}
	start(first, one, "10.99.0.9/24")
	first.says("took the shared address")
	mac, err := exec.Command("ip", "netns", "exec", one, "cat", "/sys/class/net/boot0/address").Output()
	if err != nil {
		t.Fatal(err)
	}
	start(second, two, "10.99.0.9/24")
	second.says(strings.TrimSpace(string(mac)))
	if strings.Contains(addresses(two), "10.99.0.9") {
		t.Error("two boxes have the address")
	}
	first.stop()
	second.says("took the shared address")
}
