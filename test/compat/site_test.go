package compat_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/lab"
)

// site is what an operator of version 0.1 has written. The rests are long enough to act in.
const site = `
kind: Network
name: lo
spec:
  cidr: 127.0.0.0/8
  ranges: [{from: 127.78.0.1, to: 127.78.0.200}]
---
kind: Template
name: install
spec:
  actions:
    - {name: wipe, use: wipe}
    - {name: image, use: image, with: {image: system}}
    - {name: rest0, use: noop, with: {sleep: 2s}}
    - {name: rest1, use: noop, with: {sleep: 2s}}
    - {name: rest2, use: noop, with: {sleep: 2s}}
    - {name: seed, use: seed}
    - {name: reboot, use: reboot}
---
kind: Site
name: site
spec: {platform: sim, accept: true}
---
kind: Secret
name: bmc
spec: {data: {user: root, password: calvin}}
---
kind: Account
name: robot
spec: {role: viewer}
`

// furnish makes a site by a version's commands, and gives its image.
func (h *head) furnish(program string) (image []byte) {
	h.Helper()
	cl := h.asks(h)
	kernel, errKernel := cl.PutBlob(h.Context(), bytes.NewReader(content(1)), client.PutOptions{})
	initrd, errInitrd := cl.PutBlob(h.Context(), bytes.NewReader(content(2)), client.PutOptions{})
	_, err := client.Of[trivet.Platform](cl).Create(h.Context(), &trivet.Platform{Meta: trivet.Meta{Name: "sim"},
		Spec: trivet.PlatformSpec{Arch: "amd64", Version: "simulated", Kernel: kernel, Initrd: initrd}})
	image = content(3)
	file := filepath.Join(h.TempDir(), "system.raw")
	if err := errors.Join(errKernel, errInitrd, err, os.WriteFile(file, image, 0o600)); err != nil {
		h.Fatal(err)
	}
	h.must(program, "image", "import", file, "--name", "system")
	h.apply(program, site)
	return image
}

// content is 9 MiB: three chunks.
func content(seed byte) []byte {
	b := make([]byte, 9<<20)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// box is a simulated machine.
type box struct {
	*lab.Machine
	h *head
}

// plugIn powers a new machine on, which has an agent of this version, or an installer OS of the old one, until the test ends.
func (h *head) plugIn(name string, old bool, heads ...*head) *box {
	h.Helper()
	n := hosts.Add(1)
	b := &box{&lab.Machine{Name: name, MAC: fmt.Sprintf("52:54:00:77:%02x:%02x", n>>8, n&0xff), Dir: h.TempDir(), Up: func() {}}, h}
	said := &transcript{}
	b.Log = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if old {
		b.Installer = func(ctx context.Context, args string) error {
			cmd := exec.CommandContext(ctx, oldInstaller, args, b.MAC, name, b.Dir)
			cmd.Stdout, cmd.Stderr = said, said
			return cmd.Run()
		}
	}
	for _, o := range heads {
		b.DHCP = append(b.DHCP, o.dhcp())
	}
	m := &trivet.Machine{Meta: trivet.Meta{Name: name}, Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: b.MAC}}}}
	if _, err := client.Of[trivet.Machine](h.asks(heads...)).Create(h.Context(), m); err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(func() {
		cancel()
		running.Wait()
		if h.Failed() {
			h.Logf("%s said:\n%s", name, said)
		}
	})
	return b
}

// awaits waits until an action of the machine's run has got to a state.
func (b *box) awaits(cl *client.Client, action string, state trivet.StepState) {
	b.h.Helper()
	b.h.await(fmt.Sprint(b.Name, ": ", action, " is ", state), func() error {
		w, err := b.run(cl)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(w.Status.Steps, func(s trivet.Step) bool { return s.Name == action })
		if i < 0 || w.Status.Steps[i].State != state {
			return fmt.Errorf("the run is %+v", w.Status)
		}
		return nil
	})
}

// run is the machine's.
func (b *box) run(cl *client.Client) (*trivet.Workflow, error) {
	m, err := client.Of[trivet.Machine](cl).Get(b.h.Context(), b.Name)
	if err != nil {
		return nil, err
	}
	return client.Of[trivet.Workflow](cl).Get(b.h.Context(), m.Status.Workflow)
}

// succeeds waits until the run has, and wants each action to have been done once.
func (b *box) succeeds(cl *client.Client) {
	b.h.Helper()
	var w *trivet.Workflow
	b.h.await(b.Name+" is installed", func() (err error) {
		if w, err = b.run(cl); err == nil && w.Status.State != trivet.WorkflowSucceeded {
			err = fmt.Errorf("the run is %+v", w.Status)
		}
		return err
	})
	entries, err := journal.Read(b.JournalPath())
	if err != nil {
		b.h.Fatal(err)
	}
	begun := map[string]int{}
	for _, e := range entries {
		if e.Report != nil && e.Report.State == trivet.StepRunning {
			begun[e.Report.Action]++
		}
	}
	for _, a := range w.Spec.Actions {
		if begun[a.Name] != 1 {
			b.h.Errorf("%s: %s was begun %d times", b.Name, a.Name, begun[a.Name])
		}
	}
}

// gives wants a blob from the head's boot door.
func (h *head) gives(digest string, want []byte) {
	h.Helper()
	h.await("it gives the image", func() error {
		resp, err := http.Get(h.boot() + "/blob/" + digest)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Equal(got, want) {
			err = fmt.Errorf("%s, %d bytes", resp.Status, len(got))
		}
		return err
	})
}
