package e2e_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
)

// A machine is installed by three heads, although at each stage the head that serves it at that moment is lost: by
// kill -9, once by a cut cable. Each returns when the machine has continued with another one, but for the one that is
// lost with its disk while the image is written: an operator replaces it. Nothing else needs one, and all is well then.
func TestInstallWithEachServingHeadLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "e2e-heads", 3)
	c.importPlatform()
	c.importDebian()
	c.backUp()
	p := newPassage(c)
	done := p.box.provision()
	p.box.powerOn()
	p.box.mustComeUp(done)
	p.box.mustRunOnce()
	p.mustBeThrough()
	p.returns.Wait()
	p.mustBeWell()
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

// newCluster starts heads.
func newCluster(t *testing.T, name string, heads int) *cluster {
	t.Helper()
	c := &cluster{site: newRack(t, name, switchAddress), byMAC: map[string]*head{}}
	for i := range heads {
		h := c.plugInHead()
		c.heads = append(c.heads, h)
		if i == 0 {
			c.head = h
			c.startFirst()
			continue
		}
		h.mustStart(c.joining()...)
		c.awaitMember(c.port(h))
	}
	c.trivet("context", "--refresh")
	c.keepCredential()
	return c
}

// keepCredential gives the operator a credential of its own: that of the first head is lost with it, and revoked when
// it is replaced.
func (c *cluster) keepCredential() {
	c.Helper()
	file := testhead.AdminFile(c.path("data"))
	admin, err := testhead.Admin(file)
	text, errText := os.ReadFile(file)
	token, errToken := c.output("token", "issue", "admin")
	if err := errors.Join(err, errText, errToken); err != nil {
		c.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte(admin.Token), []byte(strings.TrimSpace(token)))
	c.admin = c.path("operator.yaml")
	if err := os.WriteFile(c.admin, text, 0o600); err != nil {
		c.Fatal(err)
	}
}

// plugInHead connects another host to the switch, for a head that has not started yet.
func (c *cluster) plugInHead() *head {
	c.Helper()
	i := len(c.byMAC)
	address, data := fmt.Sprintf("10.77.0.%d", i+1), "data"
	if i > 0 {
		data = fmt.Sprintf("data%d", i)
	}
	host := c.network(fmt.Sprintf("%s-%d", c.net.Name(), i), address)
	c.connect(fmt.Sprintf("head%d", i), c.net, host, "")
	h := c.newHead(data, address, host, "--dhcp", "lab0")
	c.byMAC[string(macOf(c.T, host))] = h
	return h
}

// add lets another head join, by the command that is printed for that.
func (c *cluster) add() {
	c.Helper()
	h := c.plugInHead()
	if err := c.join(h, "head", "token"); err != nil {
		c.Fatal(err)
	}
	c.heads = append(c.heads, h)
}

var (
	joinCommand = regexp.MustCompile(`(?m)^  trivet server (--join \S+ --token) TOKEN$`)
	joinToken   = regexp.MustCompile(`(?m)^sha256:\S+\.trivet_\S+$`)
)

// join starts a head by the command that an operator command prints for it.
func (c *cluster) join(h *head, args ...string) error {
	out, err := c.try(args...)
	if err != nil {
		return err
	}
	flags := joinCommand.FindStringSubmatch(out)
	if flags == nil {
		return fmt.Errorf("trivet %v has not printed how a head joins:\n%s", args, out)
	}
	return h.start(append(strings.Fields(flags[1]), joinToken.FindString(out))...)
}

// lose loses heads for good: by kill -9, with their disks.
func (c *cluster) lose(heads ...*head) (err error) {
	for _, h := range heads {
		h.kill()
	}
	for _, h := range heads {
		err = errors.Join(err, os.RemoveAll(c.path(h.name)))
		c.heads = slices.DeleteFunc(c.heads, func(o *head) bool { return o == h })
	}
	return err
}

// backUp makes a backup, and proves it. The first one needs the recovery key.
func (c *cluster) backUp(flags ...string) {
	c.Helper()
	key, dir := c.path("recovery.key"), c.path("backups")
	if _, err := os.Stat(key); err != nil {
		text, err := c.output("backup", "key", "--yes")
		if err := errors.Join(err, os.WriteFile(key, []byte(text), 0o600)); err != nil {
			c.Fatal(err)
		}
	}
	var made struct{ Name string }
	out, err := c.output(append([]string{"backup", "create", "--to", dir, "-o", "json"}, flags...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &made)
	}
	if err != nil {
		c.Fatal(err)
	}
	c.trivet("backup", "verify", filepath.Join(dir, made.Name), "--key", key)
}

// mustHaveStatus waits until the exit status of trivet status is this one, and its output has these texts.
func (c *cluster) mustHaveStatus(status int, texts ...string) {
	c.Helper()
	c.awaitStatus(2*time.Minute, status, texts...)
}

func (c *cluster) awaitStatus(limit time.Duration, status int, texts ...string) {
	c.Helper()
	var out string
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("trivet status printed last:\n%s", out)
		}
	})
	c.waitFor(fmt.Sprintf("trivet status exits with %d, and prints %q", status, texts), limit, func() bool {
		var err error
		out, err = c.try("status")
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() != status || (err == nil) != (status == 0) {
			return false
		}
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(out, text) })
	})
}

// mustBeWell waits until all invariants hold.
func (c *cluster) mustBeWell() {
	c.Helper()
	c.mustHaveStatus(0)
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
	c.waitFor(name+" is a member", time.Minute, func() bool { return c.isMember(name) })
}

func (c *cluster) isMember(name string) bool {
	out, err := c.output("get", "heads", name, "-o", "json")
	return err == nil && strings.Contains(out, `"member"`)
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

// port is the head's on the switch, and its name until a recovery.
func (c *cluster) port(h *head) string {
	i, _ := strings.CutPrefix(h.name, "data")
	return "head" + cmp.Or(i, "0")
}

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
