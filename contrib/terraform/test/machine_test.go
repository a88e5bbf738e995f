package test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/action"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// prepare creates what machines boot with: a platform, and the site's configuration.
func (s *site) prepare() {
	s.Helper()
	blob, errBlob := s.client.PutBlob(s.Context(), bytes.NewReader([]byte("kernel")), client.PutOptions{})
	_, errPlatform := client.Of[trivet.Platform](s.client).Create(s.Context(), &trivet.Platform{
		Meta: trivet.Meta{Name: "sim"}, Spec: trivet.PlatformSpec{Arch: "amd64", Version: "v", Kernel: blob, Initrd: blob}})
	_, errSite := client.Of[trivet.Site](s.client).Modify(s.Context(), trivet.SiteName, func(site *trivet.Site) error {
		site.Spec.Platform, site.Spec.Accept = "sim", true
		return nil
	})
	if err := errors.Join(errBlob, errPlatform, errSite); err != nil {
		s.Fatal(err)
	}
}

// network is a network of loopback, on which simulated machines boot.
const network = "cidr: 127.0.0.0/8\nranges: [{from: 127.77.0.1, to: 127.77.255.254}]\n"

// rack is a simulated machine, which can be reset.
type rack struct {
	*lab.Machine
	mu      sync.Mutex
	off     context.CancelFunc // guarded by mu; nil: it is off
	running sync.WaitGroup
}

// newMachine returns a machine that is off. What an action does may be replaced by an error.
func (s *site) newMachine(name, mac string, fails map[string]error) *rack {
	s.Helper()
	log := testhead.NewLog()
	r := &rack{Machine: &lab.Machine{Name: name, MAC: mac, Dir: s.TempDir(), Up: func() {},
		DHCP: []string{s.head.Address + ":7067"}, Log: slog.New(slog.NewTextHandler(log, nil)), Wrap: failing(fails)}}
	s.Cleanup(func() {
		if r.powerOff(); s.Failed() {
			s.Logf("log of %s:\n%s", name, log)
		}
	})
	return r
}

// failing returns what replaces actions by errors.
func failing(fails map[string]error) func(lab.Doer) lab.Doer {
	return func(do lab.Doer) lab.Doer {
		return func(ctx context.Context, a *action.Attempt) error {
			if err := fails[a.Action.Name]; err != nil {
				return err
			}
			return do(ctx, a)
		}
	}
}

func (r *rack) powerOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.off != nil {
		r.off()
	}
	r.running.Wait()
}

// reset powers the machine off, if it is on, and on.
func (r *rack) reset() {
	r.powerOff()
	r.mu.Lock()
	defer r.mu.Unlock()
	var ctx context.Context
	ctx, r.off = context.WithCancel(context.Background())
	r.running.Go(func() { _ = r.Run(ctx) }) // its log has the error
}

// attend resets a machine once it has a record, since it would enrol under another name before, and whenever a
// provision is deleted, as a person does with a machine that has no BMC.
func (s *site) attend(r *rack) {
	ctx, end := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	s.Cleanup(func() { end(); watching.Wait(); r.powerOff() })
	watching.Go(func() {
		known := false
		for e, err := range s.client.Watch(ctx, client.WatchOptions{Kinds: []trivet.Kind{"Machine", "Provision"}}) {
			if err != nil {
				return
			}
			first := !known && e.Record != nil && e.Name == r.Name && e.Kind == "Machine"
			if first || e.Type == client.Delete && e.Kind == "Provision" {
				known = true
				r.reset()
			}
		}
	})
}
