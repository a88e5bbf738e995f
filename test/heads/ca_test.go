package heads_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/bmc"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/membership"
	"github.com/trivet-project/trivet/internal/peer"
	"github.com/trivet-project/trivet/internal/testhead"
)

// The CA is rotated under load, on two full heads and a witness: each starts again by itself, three times, and no write
// fails. Afterwards all trust the new CA only: what a head that was stolen before has is refused. An agent that was up,
// and a context that was used meanwhile, have followed; a context that was not used is refused, and a recovery key of
// before opens a backup. A head that was removed before starts no more.
func TestCARotation(t *testing.T) {
	t.Parallel()
	h0, l := startWithLedger(t)
	h1 := h0.join("head1")
	w := h0.join("head2", "token", "--witness")
	all := []*head{h0, h1, w}
	l.cl = h0.client(h0, h1)
	box := addPowered(t, h0, bmc.Off)[0]
	platform(t, h0)
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
	gone := h0.join("head3")
	gone.Kill()
	h0.MustTrivet("head", "remove", "head3", "--yes")
	h0.Await("head3 is removed", func() error {
		if s := must(client.Of[trivet.Head](l.cl).Get(t.Context(), "head3"))(t).Status.State; s != trivet.HeadRemoved {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	stolen, old := copyOf(t, h1), h0.rootCA(t)
	used, unused := h0.contextFile(t), h0.contextFile(t)
	key := filepath.Join(t.TempDir(), "recovery.key")
	if err := os.WriteFile(key, []byte(h0.MustTrivet("backup", "key", "--yes")), 0o600); err != nil {
		t.Fatal(err)
	}

	h0.MustTrivet("key", "rotate", "ca", "--grace", "5s", "--no-wait")
	written := 0
	for phase := trivet.KeyPhase(""); ; written++ {
		l.create(fmt.Sprint("load", written))
		k := must(client.Of[trivet.Key](l.cl).Get(t.Context(), trivet.CAKey))(t)
		if k.Status.Phase != phase {
			phase = k.Status.Phase
			t.Logf("%q: %s", phase, k.Status.Reason)
		}
		if phase == trivet.KeyFollowing {
			used.mustTrivet(t, "get", "heads")
		}
		if !k.Rotating() {
			break
		}
	}
	now := h0.rootCA(t)
	for _, h := range all {
		root := h.rootCA(t)
		if pins := root.Pins(); len(pins) != 1 || slices.Contains(old.Pins(), pins[0]) || pins[0] != now.Pins()[0] {
			t.Errorf("%s has the CAs %v; before the rotation %v", h.Name, pins, old.Pins())
		}
	}
	for _, cl := range []*client.Client{h0.client(h0), h1.clientOnce(h1)} {
		for i := range written {
			must(client.Of[trivet.Machine](cl).Get(t.Context(), fmt.Sprint("load", i)))(t)
		}
	}
	started := func(name string) time.Time {
		return must(client.Of[trivet.Head](l.cl).Get(t.Context(), name))(t).Status.Started
	}
	if gap := started("head1").Sub(started("head0")); gap < 2*time.Second { // whole seconds are recorded
		t.Errorf("head1 started again %s after head0, which was not well for long enough", gap)
	}
	l.write()
	h1.Kill() // the witness and head0 are a quorum: they reach each other
	l.cl = h0.client(h0)
	l.write()
	h1.Up()
	h1.AwaitReady()
	l.read(h0.client(h1))

	before := []keyring.Ring{h0.ring(t, trivet.StoreKey), h0.ring(t, trivet.SealKey), h0.ring(t, trivet.BootKey)}
	h0.MustTrivet("rotate", "store")
	h0.MustTrivet("rotate", "seal") // among others, the password of the machine's BMC
	h0.MustTrivet("rotate", "boot", "--grace", "1s")
	for i, name := range []string{trivet.StoreKey, trivet.SealKey, trivet.BootKey} {
		for _, h := range []*head{h0, h1} {
			if now := h.ring(t, name).IDs(); len(now) != 1 || now[0] == before[i].IDs()[0] {
				t.Errorf("%s has the keys %v of %s, before %v", h.Name, now, name, before[i].IDs())
			}
		}
	}
	h0.MustTrivet("resume", "slow")
	h0.Await("the run of before has succeeded", func() error {
		if m.up.Load() == 0 {
			return errors.New("it has not")
		}
		return nil
	})

	gone.Start()
	gone.expectRefusal("removed from cluster")
	stolen.isRefused(t, h0)
	used.mustTrivet(t, "get", "heads")
	if out, err := unused.trivet(t, "get", "heads"); err == nil || !strings.Contains(out, "login") {
		t.Errorf("a context that did not follow: %v\n%s", err, out)
	}
	to := filepath.Join(t.TempDir(), "backups")
	var created struct{ Name string }
	decode(t, h0.MustTrivet("backup", "create", "--to", to, "-o", "json"), &created)
	h0.MustTrivet("backup", "verify", filepath.Join(to, created.Name), "--key", key)
}

// awaitAgent waits until the agent of a machine has registered its key.
func (h *head) awaitAgent(cl *client.Client, machine string) {
	h.Helper()
	h.Await("its agent is up", func() error {
		if key := must(client.Of[trivet.Machine](cl).Get(h.Context(), machine))(h.T).Status.AgentKey; key == "" {
			return errors.New("it has registered no key")
		}
		return nil
	})
}

// rootCA returns the CAs in the head's directory.
func (h *head) rootCA(t *testing.T) *auth.Root {
	t.Helper()
	return must(auth.ParseRoot(must(os.ReadFile(filepath.Join(h.Dir, "keys/ca.pem")))(t)))(t)
}

// create creates a machine.
func (l *ledger) create(name string) {
	l.Helper()
	m := &trivet.Machine{Meta: trivet.Meta{Name: name}}
	if _, err := client.Of[trivet.Machine](l.cl).Create(l.Context(), m); err != nil {
		l.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
}

// ring returns the keys of a name in the head's directory.
func (h *head) ring(t *testing.T, name string) keyring.Ring {
	t.Helper()
	return must(keyring.Parse(must(os.ReadFile(filepath.Join(h.Dir, "keys", name+".keys")))(t)))(t)
}

// thief is what was copied from a head's disk.
type thief struct {
	name string
	pair tls.Certificate
	root *auth.Root
}

func copyOf(t *testing.T, h *head) *thief {
	t.Helper()
	file := filepath.Join(h.Dir, "peer.pem")
	return &thief{h.Name, must(tls.LoadX509KeyPair(file, file))(t), h.rootCA(t)}
}

// isRefused requests the keys of the cluster, with the certificate of before: of a server of the new CA.
func (s *thief) isRefused(t *testing.T, at *head) {
	t.Helper()
	cl := peer.NewClient(func() (*tls.Certificate, error) { return &s.pair, nil },
		func() *auth.Root { return at.rootCA(t) }, func() peer.Info { return peer.Info{Head: s.name} })
	defer cl.Close()
	for _, path := range []string{"keys/ca", "keys/store"} {
		var resp membership.CAsResponse
		if err := cl.Call(t.Context(), at.API(), path, struct{}{}, &resp); !errors.Is(err, trivet.ErrUnauthenticated) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// contextFile is a config file of a person.
type contextFile struct{ path string }

// contextFile copies the head's administrator's file.
func (h *head) contextFile(t *testing.T) contextFile {
	t.Helper()
	f := contextFile{filepath.Join(t.TempDir(), "config.yaml")}
	file := must(client.ReadFile(h.AdminFile()))(t)
	if err := file.Write(f.path); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f contextFile) trivet(t *testing.T, args ...string) (string, error) {
	t.Helper()
	r, err := testhead.CLI(t.Context(), exec.Command(testhead.Program(t), args...), f.path)
	return r.All, err
}

func (f contextFile) mustTrivet(t *testing.T, args ...string) {
	t.Helper()
	if out, err := f.trivet(t, args...); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}
