package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
)

// A machine is installed by three heads, without an operator, although at each stage the head that serves it at that
// moment is lost: by kill -9, once by a cut cable. Each returns when the machine has continued with another one.
func TestInstallWithEachServingHeadLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "e2e-heads", 3)
	c.importPlatform()
	c.importDebian()
	p := newPassage(c)
	done := p.box.provision()
	p.box.powerOn()
	p.box.mustComeUp(done)
	p.box.mustRunOnce()
	p.mustBeThrough()
	if w := p.workflow(); w.Status.State != trivet.WorkflowSucceeded || w.Status.Resets != 0 {
		t.Errorf("the workflow ended as %+v", w.Status)
	}
}

// cluster is a site with several heads, each a host on the switch.
type cluster struct {
	*site
	heads []*head
	byMAC map[string]*head
}

const switchAddress = "10.77.0.250"

// newCluster starts up to three heads.
func newCluster(t *testing.T, name string, heads int) *cluster {
	t.Helper()
	c := &cluster{site: newRack(t, name, switchAddress), byMAC: map[string]*head{}}
	for i, data := range []string{"data", "data1", "data2"}[:heads] {
		address, port := fmt.Sprintf("10.77.0.%d", i+1), fmt.Sprintf("head%d", i)
		host := c.network(fmt.Sprintf("%s-%d", name, i), address)
		c.connect(port, c.net, host, "")
		h := c.newHead(data, address, host, "--dhcp", "lab0")
		c.heads = append(c.heads, h)
		c.byMAC[string(macOf(t, host))] = h
		if i == 0 {
			c.head = h
			c.startFirst()
			continue
		}
		h.mustStart(c.joining()...)
		c.awaitMember(port)
	}
	c.trivet("context", "--refresh")
	return c
}

// joining are the flags of a head that joins, with a token of its own.
func (c *cluster) joining() []string {
	c.Helper()
	token := regexp.MustCompile(`sha256:\S+\.trivet_\S+`).FindString(c.trivet("head", "token"))
	return []string{"--join", "https://" + headAddress + ":7480", "--token", token}
}

// awaitMember waits until a new head is a member.
func (c *cluster) awaitMember(name string) {
	c.Helper()
	c.waitFor(name+" is a member", time.Minute, func() bool {
		out, err := c.output("get", "heads", name, "-o", "json")
		return err == nil && strings.Contains(out, `"member"`)
	})
}

// macOf returns the MAC of a host.
func macOf(t *testing.T, n *vm.Network) (mac net.HardwareAddr) {
	t.Helper()
	err := n.Do(func() error {
		link, err := net.InterfaceByName("lab0")
		if err == nil {
			mac = link.HardwareAddr
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// port is the head's on the switch, and its name.
func (c *cluster) port(h *head) string { return fmt.Sprintf("head%d", slices.Index(c.heads, h)) }

// whole waits until all heads accept writes.
func (c *cluster) whole() (err error) {
	for _, h := range c.heads {
		err = errors.Join(err, h.ready())
	}
	return err
}

// kill is kill -9; undo starts the head again.
func (c *cluster) kill(h *head) (undo func() error, err error) {
	h.kill()
	return func() error { return h.start() }, nil
}

// cut disconnects the head's cable: nothing passes in either direction.
func (c *cluster) cut(h *head) (undo func() error, err error) {
	link := []string{"-n", c.net.Name(), "link", "set", c.port(h)}
	return func() error { return errors.Join(c.tryIP(append(link, "up")...), h.ready()) },
		c.tryIP(append(link, "down")...)
}
