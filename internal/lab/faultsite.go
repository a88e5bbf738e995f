package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc/bmctest"
	"github.com/trivet-project/trivet/internal/lab/grade"
	"github.com/trivet-project/trivet/internal/wait"
)

// The scenario "faults": a site on which much is wrong, as a truth says that is written before the heads start. What
// the records show at the end, and when they showed it, is graded by that.

const (
	// pace is what all deadlines are divided by, so that the demo takes minutes.
	pace = 12
	// maxInFlight is how many provisions are in progress at the same time.
	maxInFlight = 40
	// restAfterKill is how long no head is killed after a kill.
	restAfterKill = 5 * time.Second
	actionTimeout = 10 * time.Second
	poolLabel     = "pool"
	bmcUser       = "demo"
)

// faultSite is the machines of the scenario, with their BMCs.
type faultSite struct {
	demo     *Demo
	client   *client.Client
	truth    *grade.Truth
	seen     *grade.Observer
	supplies []*Supply
	bmcs     []*bmctest.RedfishServer
	password string
}

// failover runs provisions on a site on which much is wrong, and grades what becomes of them.
func (d *Demo) failover(ctx context.Context, on *demoSite) (summary Summary, err error) {
	site, err := newFaultSite(d)
	if err != nil {
		return Summary{}, err
	}
	defer func() { err = errors.Join(err, site.close()) }()
	d.status("preparing %d machines", d.Machines)
	if err := site.prepare(ctx, on.client, on.dhcp); err != nil {
		return Summary{}, fmt.Errorf("prepare the site: %w", err)
	}
	progress, err := newTracker(d, on.client, site.names())
	if err != nil {
		return Summary{}, err
	}
	defer func() { err = errors.Join(err, progress.close()) }()
	progress.seen = site.seen
	began := time.Now()
	run, stop := context.WithCancel(ctx)
	defer stop()
	g, run := errgroup.WithContext(run)
	g.Go(func() error { return site.provide(run, progress) })
	var faults *faultInjector
	if d.Kill {
		if faults, err = site.injector(ctx, on.heads, progress); err != nil {
			return Summary{}, err
		}
		faults.rest = restAfterKill
		g.Go(func() error {
			if err := faults.run(run); run.Err() == nil {
				return err
			}
			return nil // all provisions have ended meanwhile
		})
	}
	err = progress.watch(run)
	stop()
	err = errors.Join(err, g.Wait())
	summary = progress.summary(time.Since(began))
	var outages []grade.Outage
	if faults != nil && err == nil {
		outages = faults.outages
		summary.Faults, err = faults.summary(ctx)
	}
	if err == nil {
		summary.Result, err = site.grade(ctx, progress, outages)
	}
	return summary, err
}

// newFaultSite decides what is wrong, and writes it beside the history.
func newFaultSite(d *Demo) (*faultSite, error) {
	s := &faultSite{demo: d, truth: grade.New(d.Machines, d.Seed), seen: grade.NewObserver(),
		password: rand.Text()}
	if d.History == "" {
		return s, nil
	}
	text, err := json.MarshalIndent(s.truth, "", " ")
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(truthFile(d.History), append(text, '\n'), 0o644)
}

// truthFile returns the file of the truth for that of a history.
func truthFile(history string) string {
	return strings.TrimSuffix(history, filepath.Ext(history)) + ".truth.json"
}

// agentTimeout is how long an agent may be silent.
func agentTimeout() trivet.Duration {
	return max(trivet.DefaultAgentTimeout/pace, trivet.Duration(5*time.Second))
}

// timeouts returns how long an attempt of each step may take.
func timeouts() map[string]time.Duration {
	all := map[string]time.Duration{}
	for _, step := range trivet.BootSteps {
		all[step] = trivet.DefaultLimits[step].Timeout.D() / pace
	}
	for _, action := range []string{grade.Wipe, grade.Image, grade.MOTD, grade.Rest, grade.Seed} {
		all[action] = actionTimeout
	}
	return all
}

// prepare creates the records of the site, and the machines with their BMCs.
func (s *faultSite) prepare(ctx context.Context, c *client.Client, dhcp []string) error {
	s.client = c
	if err := prepare(ctx, c, false); err != nil {
		return err
	}
	site := trivet.SiteSpec{Platform: "demo", AgentTimeout: agentTimeout(), Limits: map[string]trivet.Limit{}}
	for _, step := range trivet.BootSteps {
		site.Limits[step] = trivet.Limit{Timeout: trivet.Duration(timeouts()[step]),
			Retries: trivet.DefaultLimits[step].Retries}
	}
	_, err := client.Of[trivet.Secret](c).Create(ctx, &trivet.Secret{Meta: trivet.Meta{Name: "bmc"},
		Spec: trivet.SecretSpec{Data: map[string]string{"user": bmcUser, "password": s.password},
			Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Insecure: true}})
	err = errors.Join(err, setSite(ctx, c, site), s.createFaulty(ctx), s.createTemplates(ctx), s.createNetworks(ctx))
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i := range s.truth.Machines {
		m, server, err := s.addMachine(i, dhcp)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error { return s.createMachine(ctx, i, m, server.Address) })
	}
	return g.Wait()
}

// createFaulty creates a platform whose kernel does not start, and an image that is damaged.
func (s *faultSite) createFaulty(ctx context.Context) error {
	kernel, err := s.client.PutBlob(ctx, bytes.NewReader(append([]byte(brokenKernel), content(64<<10)...)),
		client.PutOptions{})
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return err
	}
	raw := content(4 << 20)
	damaged := enc.EncodeAll(raw, nil)
	damaged[len(damaged)/2] ^= 0xff
	image, err := s.client.PutBlob(ctx, bytes.NewReader(damaged), client.PutOptions{})
	if err != nil {
		return err
	}
	_, errPlatform := client.Of[trivet.Platform](s.client).Create(ctx, &trivet.Platform{
		Meta: trivet.Meta{Name: "broken"},
		Spec: trivet.PlatformSpec{Arch: "amd64", Version: "simulated", Kernel: kernel, Initrd: kernel}})
	_, errImage := client.Of[trivet.Image](s.client).Create(ctx, &trivet.Image{Meta: trivet.Meta{Name: "damaged"},
		Spec: trivet.ImageSpec{Blob: image, Format: "raw", Compression: "zstd", RawBytes: int64(len(raw))}})
	return errors.Join(errPlatform, errImage)
}

// createTemplates creates a template for each that a provision names.
func (s *faultSite) createTemplates(ctx context.Context) error {
	made := map[string]bool{}
	for _, p := range s.truth.Provisions {
		if made[p.Template] {
			continue
		}
		made[p.Template] = true
		image := "demo"
		if p.BadImage {
			image = "damaged"
		}
		const timeout = trivet.Duration(actionTimeout)
		_, err := client.Of[trivet.Template](s.client).Create(ctx, &trivet.Template{Meta: trivet.Meta{Name: p.Template},
			Spec: trivet.TemplateSpec{Actions: []trivet.Action{
				{Name: grade.Wipe, Use: "wipe", Retries: 1, Timeout: timeout},
				{Name: grade.Image, Use: "image", With: map[string]any{"image": image}, Retries: 1, Timeout: timeout},
				{Name: grade.MOTD, Use: "file", Retries: 1, Timeout: timeout,
					With: map[string]any{"path": "/etc/motd", "content": "demo\n"}},
				{Name: grade.Rest, Use: "noop", With: map[string]any{"sleep": "1s"}, Retries: 1, Timeout: timeout},
				{Name: grade.Seed, Use: "seed", Retries: 1, Timeout: timeout},
				{Name: "reboot", Use: "reboot"},
			}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// rackNetwork returns the network of a rack. Its first address is that of the DHCP relay.
func rackNetwork(rack int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(200 + rack>>8), byte(rack), 0}), 24)
}

func (s *faultSite) createNetworks(ctx context.Context) error {
	networks := client.Of[trivet.Network](s.client)
	if err := networks.Delete(ctx, "loopback"); err != nil {
		return err
	}
	last := s.truth.Machines[len(s.truth.Machines)-1].Rack
	for rack := range last + 1 {
		_, err := networks.Create(ctx, &trivet.Network{Meta: trivet.Meta{Name: rackName(rack)},
			Spec: trivet.NetworkSpec{CIDR: rackNetwork(rack)}})
		if err != nil {
			return err
		}
	}
	return nil
}

func rackName(rack int) string { return fmt.Sprintf("rack%d", rack) }

// addMachine returns the i-th machine, which is off, and its BMC.
func (s *faultSite) addMachine(i int, dhcp []string) (*Machine, *bmctest.RedfishServer, error) {
	truth := &s.truth.Machines[i]
	m := &Machine{Name: truth.Name, MAC: macOf(i), Dir: s.demo.Dir, DHCP: slices.Concat(dhcp[i%len(dhcp):], dhcp),
		Log: s.demo.Log, Up: func() {}, Relay: nth(rackNetwork(truth.Rack), 1)}
	p := &Supply{Machine: m}
	switch f := truth.Fault; f.Kind {
	case grade.Dead, grade.Flaky, grade.Network:
		m.broken = &breakdown{step: f.Step, mode: f.Mode, once: f.Kind == grade.Flaky}
	case grade.BMC:
		p.fault = f.Mode
	}
	s.supplies = append(s.supplies, p)
	server, err := bmctest.StartRedfish("127.0.0.1:0", p.Handler(bmcUser, s.password))
	if err == nil {
		s.bmcs = append(s.bmcs, server)
	}
	return m, server, err
}

func (s *faultSite) createMachine(ctx context.Context, i int, m *Machine, bmcAddress string) error {
	truth := &s.truth.Machines[i]
	spec := trivet.MachineSpec{Rack: rackName(truth.Rack),
		NICs: []trivet.NIC{{MAC: m.MAC, Address: nth(rackNetwork(truth.Rack), byte(2+i%grade.PerRack))}},
		BMC:  &trivet.BMC{Protocol: "redfish", Address: bmcAddress, Secret: "bmc"}}
	if truth.Pool == grade.Old {
		spec.Platform = "broken"
	}
	_, err := client.Of[trivet.Machine](s.client).Create(ctx, &trivet.Machine{
		Meta: trivet.Meta{Name: m.Name, Labels: map[string]string{poolLabel: string(truth.Pool)}}, Spec: spec})
	return err
}

// injector returns what kills heads meanwhile. It fetches the boot script of a machine that is never installed.
func (s *faultSite) injector(ctx context.Context, heads *headProcesses, progress *tracker) (*faultInjector, error) {
	_, err := client.Of[trivet.Network](s.client).Create(ctx, &trivet.Network{Meta: trivet.Meta{Name: "probe"},
		Spec: trivet.NetworkSpec{CIDR: netip.PrefixFrom(probeAddress, 24).Masked()}})
	mac := macOf(s.demo.Machines)
	err = errors.Join(err, record(ctx, s.client, "probe", trivet.NIC{MAC: mac, Address: probeAddress}))
	return newFaultInjector(heads, progress, mac), err
}

// names returns the names of the provisions.
func (s *faultSite) names() (names []string) {
	for _, p := range s.truth.Provisions {
		names = append(names, p.Name)
	}
	return names
}

// provide creates the provisions, of which maxInFlight are in progress at the same time.
func (s *faultSite) provide(ctx context.Context, progress *tracker) error {
	for i, p := range s.truth.Provisions {
		for i-progress.ended() >= maxInFlight {
			if err := wait.Sleep(ctx, 20*time.Millisecond); err != nil {
				return nil
			}
		}
		alternatives := s.truth.Alternatives
		_, err := client.Of[trivet.Provision](s.client).Create(ctx, &trivet.Provision{Meta: trivet.Meta{Name: p.Name},
			Spec: trivet.ProvisionSpec{Template: p.Template, Alternatives: &alternatives,
				Selector: map[string]string{poolLabel: string(p.Pool)}, IfNoMachine: trivet.NoMachineFail}})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// grade compares what was seen, and the records as they are now, with the truth.
func (s *faultSite) grade(ctx context.Context, progress *tracker, outages []grade.Outage) (*grade.Result, error) {
	f := &grade.Final{Outages: outages, Ended: progress.endTimes(), AgentTimeout: agentTimeout().D(), Pace: pace,
		SilentAfter: reportTime, Timeouts: timeouts()}
	runs, _, err := client.Of[trivet.Workflow](s.client).List(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, w := range runs { // the watch ended with the last provision
		s.seen.Note(w, time.Now())
	}
	var errMachines, errProvisions error
	f.Machines, _, errMachines = client.Of[trivet.Machine](s.client).List(ctx, client.ListOptions{})
	f.Provisions, _, errProvisions = client.Of[trivet.Provision](s.client).List(ctx, client.ListOptions{})
	if err := errors.Join(errMachines, errProvisions); err != nil {
		return nil, err
	}
	result := grade.Grade(s.truth, s.seen, f)
	return &result, nil
}

// close powers all machines off.
func (s *faultSite) close() error {
	var errs []error
	for _, b := range s.bmcs {
		errs = append(errs, b.Stop())
	}
	for _, p := range s.supplies {
		p.Close()
	}
	return errors.Join(errs...)
}
