package heads_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A head that would make a second cluster on a network that one serves is told of the first, and how to join it; it makes one
// if it is told to. Nobody else's DHCP server is taken for one.
func TestNetworkHasACluster(t *testing.T) {
	one, two := twoBoxes(t)
	start := func(h *head, ns string, more ...string) {
		h.run(exec.Command("ip", append([]string{"netns", "exec", ns, binary(t), "server", "--data-dir", h.dir, "--dhcp", "boot0",
			"--tftp", "", "--ipxe", h.programs()}, more...)...))
	}
	first, second := newHead(t, "the first"), newHead(t, "the second")
	start(first, one) // nobody is there
	first.says("msg=ready")
	start(second, two)
	second.refused("serves this network already", "https://10.99.0.1:7480", "--join https://10.99.0.1:7480 --token TOKEN", "--new-cluster")
	if _, err := os.Stat(second.dir + "/keys"); err == nil {
		t.Error("it has made keys")
	}
	start(second, two, "--new-cluster")
	second.says("msg=ready")
	second.stop()
	start(second, two) // its cluster is there now: nobody is asked
	second.says("msg=ready")
}

// twoBoxes are two network namespaces with a cable between them: 10.99.0.1 and 10.99.0.2 on boot0.
func twoBoxes(t *testing.T) (one, two string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: sudo make test")
	}
	one, two = fmt.Sprintf("heads-%d-a", os.Getpid()), fmt.Sprintf("heads-%d-b", os.Getpid())
	for _, args := range []string{
		"netns add " + one, "netns add " + two,
		"-n " + one + " link add boot0 type veth peer name boot0 netns " + two,
		"-n " + one + " addr add 10.99.0.1/24 dev boot0", "-n " + two + " addr add 10.99.0.2/24 dev boot0",
		"-n " + one + " link set lo up", "-n " + two + " link set lo up", "-n " + one + " link set boot0 up", "-n " + two + " link set boot0 up",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s (apt-get install iproute2)", args, err, out)
		}
		if name, ok := strings.CutPrefix(args, "netns add "); ok {
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() }) // it may never have been
		}
	}
	return one, two
}
