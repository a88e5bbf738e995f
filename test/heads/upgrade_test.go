package heads_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc"
)

// The program of two full heads and a witness is replaced under load: by one that ends at once, by that of a later
// release, which the installed program starts again after all were killed, by another version of that, and back. No
// write fails, what was acknowledged is there, and a run whose agent is of the version before goes on.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	builds := newBuilds(t)
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	w := h0.join("head2", "token", "--witness")
	all := []*head{h0, h1, w}
	l.cl = h0.client(h0, h1)
	box := addPowered(t, h0, bmc.Off)[0]
	platform(t, h0)
	imported := l.follower()
	h0.MustTrivet("provision", "slow", "--template", "install", "--machine", box.name, "--no-wait")
	h0.Await("the machine is on", func() error {
		if state := box.box.Power(); state != bmc.On {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	h0.MustTrivet("pause", "slow")
	m := box.powerOn(t, h0)
	h0.awaitAgent(l.cl, box.name)
	stop := l.underLoad()
	former := h0.versions()

	t.Log("a program that ends at once: the service manager starts the head again")
	h0.MustTrivet("upgrade", "run", builds.broken(), "--yes", "--soak", "1s", "--no-wait")
	h0.Await("the heads went back", func() error {
		for _, h := range all {
			if h.Ended() {
				h.Start()
			}
		}
		u, err := client.Of[trivet.Upgrade](l.cl).Get(t.Context(), trivet.UpgradeName)
		if err == nil && u.Status.Phase != trivet.UpgradeReverted {
			err = errors.New(string(u.Status.Phase))
		}
		if err == nil && !strings.Contains(u.Status.Cause, "head2: it ended 3 times before it was ready") {
			t.Errorf("the cause: %+v", u.Status)
		}
		return err
	})
	h0.awaitVersions(former)

	t.Log("a later release")
	next := builds.release("v99.1.0", "99.1")
	plan := h0.MustTrivet("upgrade", "run", next, "--plan")
	if !strings.Contains(plan, "1. head2 (witness)") || !strings.Contains(plan, "raised from "+
		string(trivet.CurrentRelease)+" to 99.1") || !strings.Contains(plan, "Platform follows: its agent becomes that version") ||
		!strings.Contains(plan, "Platform p: keeps its agent, as it does not say where that is") {
		t.Errorf("the plan:\n%s", plan)
	}
	out, err := h0.upgrade(next)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	first := strings.Index(out, "head2 starts")
	if first < 0 || strings.Index(out, "head1 starts") < first || strings.Index(out, "head0 starts") < first {
		t.Errorf("the witness is not the first:\n%s", out)
	}
	if again, err := h0.upgrade(next); err != nil {
		t.Errorf("the same again: %v\n%s", err, again)
	}
	h0.awaitVersions(map[string]string{"head0": "v99.1.0", "head1": "v99.1.0", "head2": "v99.1.0"})
	site := must(client.Of[trivet.Site](l.cl).Get(t.Context(), trivet.SiteName))(t)
	if site.Status.ClusterVersion != "99.1" {
		t.Errorf("the cluster's version is %s", site.Status.ClusterVersion)
	}
	first99 := h0.awaitPlatform(l.cl, "v99.1.0")
	if former := first99.Followed().Former; former == nil || former.Blob != imported.Spec.Initrd {
		t.Errorf("the former initramfs: %+v", former)
	}
	if status := h0.MustTrivet("upgrade", "status"); !strings.Contains(status, "follows") ||
		!strings.Contains(status, "new; it has not started on a machine yet") ||
		!strings.Contains(status, "former: it does not say where its agent is") {
		t.Errorf("the platforms:\n%s", status)
	}
	h0.MustTrivet("platform", "rollback", "follows")
	if p := h0.awaitPlatform(l.cl, "v1"); p.Followed().Initrd.Blob != imported.Spec.Initrd {
		t.Errorf("it went back to %+v", p.Status)
	}
	if r, err := h0.Trivet("upgrade", "rollback", "--yes"); err == nil || !strings.Contains(r.All, "does not know") {
		t.Errorf("it went back behind the cluster's version: %v\n%s", err, r.All)
	}

	t.Log("the installed program starts the new one")
	for _, h := range all {
		h.Kill()
	}
	for _, h := range all {
		h.Start()
	}
	for _, h := range all {
		h.AwaitReady()
	}
	h0.awaitVersions(map[string]string{"head0": "v99.1.0", "head1": "v99.1.0", "head2": "v99.1.0"})

	t.Log("another version of the release, and back")
	if out, err = h0.upgrade(builds.release("v99.1.1", "99.1")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h0.awaitVersions(map[string]string{"head0": "v99.1.1", "head1": "v99.1.1", "head2": "v99.1.1"})
	h0.awaitPlatform(l.cl, "v99.1.1")
	if r, err := h0.TrivetWithin(upgradeLimit, "upgrade", "rollback", "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, r.All)
	}
	h0.awaitVersions(map[string]string{"head0": "v99.1.0", "head1": "v99.1.0", "head2": "v99.1.0"})

	h0.awaitPlatform(l.cl, "v1")

	h0.MustTrivet("resume", "slow")
	h0.Await("the run of before has succeeded", func() error {
		if m.up.Load() == 0 {
			return errors.New("it has not")
		}
		return nil
	})
	l.acknowledged(stop(), h0.client(h0), h1.clientOnce(h1))

	t.Log("the installed program, which is older, cannot recover the data")
	for _, h := range all {
		h.Kill()
	}
	r, err := h0.Trivet("recover", "--from-survivor", "--data-dir", h0.Dir, "--plan")
	if err == nil || !strings.Contains(r.All, "the records use what release 99.1 added") {
		t.Errorf("%v\n%s", err, r.All)
	}
}

// follower imports a platform that follows upgrades. Its machines are simulated: what counts is where its parts are.
func (l *ledger) follower() *trivet.Platform {
	l.Helper()
	const base, agent = "\x28\xb5\x2f\xfdbase", "agent"
	put := func(text string) trivet.BlobRef {
		path := filepath.Join(l.TempDir(), "part")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			l.Fatal(err)
		}
		f := must(os.Open(path))(l.T)
		defer f.Close()
		return must(l.cl.PutBlob(l.Context(), f, client.PutOptions{}))(l.T)
	}
	initrd := put(base + agent)
	return must(client.Of[trivet.Platform](l.cl).Create(l.Context(), &trivet.Platform{
		Meta: trivet.Meta{Name: "follows"},
		Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: initrd, Initrd: initrd,
			Agent: &trivet.PlatformAgent{Base: int64(len(base)), Program: initrd.Digest, Version: "v1"}}}))(l.T)
}

// awaitAgent waits until the platform has an agent of a version, and both full heads have its initramfs and the former
// one.
func (h *head) awaitPlatform(cl *client.Client, version string) (p *trivet.Platform) {
	h.Helper()
	h.Await("the platform has the agent "+version, func() (err error) {
		p, err = client.Of[trivet.Platform](cl).Get(h.Context(), "follows")
		if err != nil {
			return err
		}
		if _, agent := p.Initrd(); agent.Version != version {
			return fmt.Errorf("%s: %s", agent.Version, p.UpgradeProblem())
		}
		return nil
	})
	initrd, _ := p.Initrd()
	check := trivet.BlobCheck{Digests: []string{initrd.Digest}}
	if former := p.Followed().Former; former != nil {
		check.Digests = append(check.Digests, former.Blob.Digest)
	}
	h.Await("the heads have it", func() (err error) {
		whole := 0
		failed := cl.CheckBlobs(h.Context(), check, func(c trivet.BlobCopy) {
			if c.Bad() {
				err = fmt.Errorf("%s on %s: %s", c.State, c.Head, c.Problem)
			}
			whole++
		})
		if failed == nil && err == nil && whole == 0 {
			err = errors.New("no head says so")
		}
		return cmp.Or(failed, err)
	})
	return p
}

// acknowledged expects all that underLoad wrote.
func (l *ledger) acknowledged(written int, of ...*client.Client) {
	l.Helper()
	l.Log(written, "writes were acknowledged meanwhile")
	for _, cl := range of {
		for i := range written {
			must(client.Of[trivet.Machine](cl).Get(l.Context(), fmt.Sprint("load", i)))(l.T)
		}
	}
}

// underLoad creates machines all the time. It returns what ends that, and returns how many were acknowledged.
func (l *ledger) underLoad() (stop func() int) {
	l.Helper()
	ended, done, created := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			m := &trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprint("load", created)}}
			if _, err := client.Of[trivet.Machine](l.cl).Create(l.Context(), m); err != nil {
				l.Errorf("write %d: %v", created, err)
				return
			}
			created++
		}
	}()
	return func() int { close(ended); <-done; return created }
}

// upgrade upgrades the heads to the program of a file, and returns what the command printed.
func (h *head) upgrade(file string) (string, error) {
	h.Helper()
	r, err := h.TrivetWithin(upgradeLimit, "upgrade", "run", file, "--yes", "--soak", "1s")
	return r.All, err
}

// upgradeLimit bounds an upgrade, and the way back: each head must have been well for a while before the next one, and
// is not where the computer is busy.
const upgradeLimit = 5 * time.Minute

// versions returns those of the heads.
func (h *head) versions() map[string]string {
	h.Helper()
	all := map[string]string{}
	for _, v := range must(h.view())(h.T).Heads {
		all[v.Name] = v.Version
	}
	return all
}

// awaitVersions waits until the heads have versions.
func (h *head) awaitVersions(want map[string]string) {
	h.Helper()
	h.Await(fmt.Sprintf("the heads run %v", want), func() error {
		v, err := h.view()
		for _, o := range v.Heads {
			if err == nil && o.Version != want[o.Name] {
				err = fmt.Errorf("%s runs %s", o.Name, o.Version)
			}
		}
		return err
	})
}

// builds builds other programs from the sources of this one.
type builds struct {
	*testing.T
	root string
}

// oneBuild lets one program be linked at a time, for the memory of small computers.
var oneBuild sync.Mutex

func newBuilds(t *testing.T) *builds {
	t.Helper()
	return &builds{t, must(filepath.Abs("../.."))(t)}
}

// release builds the program as a version of another release.
func (b *builds) release(version, release string) string {
	b.Helper()
	source := filepath.Join(b.root, "release.go")
	text := string(must(os.ReadFile(source))(b.T))
	current := fmt.Sprintf("CurrentRelease Release = %q", trivet.CurrentRelease)
	if !strings.Contains(text, current) {
		b.Fatalf("%s has no %s", source, current)
	}
	dir := b.TempDir()
	other := filepath.Join(dir, "release.go")
	text = strings.Replace(text, current, fmt.Sprintf("CurrentRelease Release = %q", release), 1)
	overlay := filepath.Join(dir, "overlay.json")
	b.write(other, text)
	b.write(overlay, fmt.Sprintf(`{"Replace":{%q:%q}}`, source, other))
	out := filepath.Join(dir, "trivet")
	b.goCommand("build", "-overlay", overlay, "-ldflags", "-s -w -X main.version="+version, "-o", out, "./cmd/trivet")
	return out
}

// broken builds a program that prints its version, and ends at once as a head.
func (b *builds) broken() string {
	b.Helper()
	dir := b.TempDir()
	out, source := filepath.Join(dir, "broken"), filepath.Join(dir, "main.go")
	b.write(source, fmt.Sprintf(brokenProgram, trivet.CurrentRelease))
	b.goCommand("build", "-o", out, source)
	return out
}

const brokenProgram = `package main

import "os"

func main() {
	if os.Args[1] != "version" {
		os.Exit(1)
	}
	os.Stdout.WriteString("{\"client\":\"v99.0.0\",\"release\":\"%s\"}\n")
}
`

func (b *builds) write(path, text string) {
	b.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func (b *builds) goCommand(args ...string) {
	b.Helper()
	oneBuild.Lock()
	defer oneBuild.Unlock()
	cmd := exec.CommandContext(b.Context(), "go", args...)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("go %v: %v\n%s", args, err, out)
	}
}
