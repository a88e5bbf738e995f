package heads_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trivet-project/trivet/internal/testhead"
)

// A first head that starts on a network that a cluster serves refuses to make a second cluster, and names the first
// one and how to join it. With --new-cluster it makes one. An unrelated DHCP server is not taken for a cluster.
func TestNetworkHasACluster(t *testing.T) {
	t.Parallel()
	one, two := twoNamespaces(t)
	start := func(h *head, ns string, more ...string) {
		h.StartIn(ns, append([]string{"--dhcp", "boot0", "--tftp", ""}, more...)...)
	}
	first, second := newHead(t, "the first"), newHead(t, "the second")
	start(first, one) // there is no cluster
	first.AwaitReady()
	start(second, two)
	second.expectRefusal("serves this network already", "https://10.99.0.1:7480",
		"--join https://10.99.0.1:7480 --token TOKEN", "--new-cluster")
	if _, err := os.Stat(second.Dir + "/keys"); err == nil {
		t.Error("it has made keys")
	}
	start(second, two, "--new-cluster")
	second.AwaitReady()
	second.Stop()
	start(second, two) // it has a cluster now, and does not probe
	second.AwaitReady()
}

// A head without data that is to recover never creates a cluster. It finds the living one on its network, and joins it
// where it has a token; until then it says what is missing, also in the login message. With data it just starts.
func TestRecoverAtFirstStart(t *testing.T) {
	t.Parallel()
	one, two := twoNamespaces(t)
	issue := filepath.Join(t.TempDir(), "issue")
	message := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(issue); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the login message: %q, %v; want %s", text, err, want)
		}
	}
	first, second := newHead(t, "head0"), newHead(t, "head1")
	first.Address, second.Address = "10.99.0.1", "10.99.0.2"
	start := func(h *head, ns string, more ...string) {
		h.StartIn(ns, append([]string{"--dhcp", "boot0", "--tftp", "", "--recover", "--issue", issue}, more...)...)
	}
	start(second, two)
	second.expectRefusal("knows no living cluster: no head answers on boot0", "trivet recover --from-survivor")
	message("knows no living cluster")
	start(second, two, "--new-cluster")
	second.ExpectFailure("pass one of them")
	first.StartIn(one, "--dhcp", "boot0", "--tftp", "")
	first.AwaitReady()
	start(second, two)
	second.expectRefusal("may not join the cluster", "https://10.99.0.1:7480", "trivet head replace NAME")
	message("without a token")
	if _, err := os.Stat(second.Dir + "/keys"); err == nil {
		t.Error("it has made keys")
	}
	token := must(testhead.CLI(t.Context(), testhead.Command(one, testhead.Program(t), "head", "token"),
		first.AdminFile()))(t)
	start(second, two, "--token", strings.TrimSpace(token.Stdout))
	second.AwaitReady()
	if text, err := os.ReadFile(issue); err == nil {
		t.Errorf("the login message of a head that runs: %s", text)
	}
	second.Stop()
	start(second, two)
	second.AwaitReady()
}

var namespaces atomic.Int32

// twoNamespaces returns two network namespaces with a cable between them: 10.99.0.1 and 10.99.0.2 on boot0.
func twoNamespaces(t *testing.T) (one, two string) {
	t.Helper()
	testhead.RequireRoot(t)
	n := namespaces.Add(1)
	one, two = fmt.Sprintf("heads-%d-%da", os.Getpid(), n), fmt.Sprintf("heads-%d-%db", os.Getpid(), n)
	for _, args := range []string{
		"netns add " + one, "netns add " + two,
		"-n " + one + " link add boot0 type veth peer name boot0 netns " + two,
		"-n " + one + " addr add 10.99.0.1/24 dev boot0", "-n " + two + " addr add 10.99.0.2/24 dev boot0",
		"-n " + one + " link set lo up", "-n " + two + " link set lo up", "-n " + one + " link set boot0 up",
		"-n " + two + " link set boot0 up",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s (apt-get install iproute2)", args, err, out)
		}
		if name, ok := strings.CutPrefix(args, "netns add "); ok {
			t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() }) // it may not exist
		}
	}
	return one, two
}
