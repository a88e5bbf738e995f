package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/bmc"
)

// load is what runs on a site during faults: programs that write, watches, machines that boot, workflows.
type load struct {
	site    *site
	history *history
	sdk     *client.Client  // an operator's program: all heads, with retries
	from    int64           // the revision after which the watches begin
	end     chan struct{}   // closed when the workers have to end
	ctx     context.Context // of the workers
	cancel  context.CancelFunc
	workers sync.WaitGroup
	feeding context.Context // of the watches
	unfeed  context.CancelFunc
	feeds   sync.WaitGroup
	racks   []*rack
	perRack int           // machines
	managed int           // racks, the last ones, whose machines have BMCs
	whole   int64         // the revision up to which everything was followed once more
	settled time.Duration // how long what has begun may take at the end
	// sections is the time of one section of what is followed once more.
	sections time.Duration
	pulses   time.Duration    // between two writes of pulse
	tickets  <-chan time.Time // one for each workflow that may begin; nil: any number may
}

// size is the number of each: machines by rack; managed racks are those whose machines have BMCs; bystanders are
// machines that only have a record.
// Steady writers write at a constant rate; resumers are watches that are resumed all the time.
type size struct {
	writers, watchers, clients, racks, machines, managed, bystanders, loops, late int
	steady, resumers                                                              int
	// each is the time between two workflows of all loops; 0: as many as there can be. pulse is that between two writes
	// of a program with the SDK; 0: pulseInterval.
	each, pulse time.Duration
}

var ordinary = size{writers: 4, watchers: 2, clients: 2, racks: 2, machines: 5, loops: 7, late: 1}

// startLoad prepares the site and begins.
func startLoad(ctx context.Context, s *site, h *history, n size) (*load, error) {
	l := &load{site: s, history: h, end: make(chan struct{}), perRack: n.machines, managed: n.managed,
		settled: settled, sections: sectionTime, pulses: cmp.Or(n.pulse, pulseInterval)}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.feeding, l.unfeed = context.WithCancel(ctx)
	var err error
	if l.sdk, err = s.client(0, s.heads...); err != nil {
		return nil, err
	}
	if err := l.prepare(ctx, n); err != nil {
		return nil, fmt.Errorf("prepare the site: %w", err)
	}
	for i := range n.watchers {
		l.feeds.Go(func() { l.follow(fmt.Sprint("watcher", i)) })
	}
	for i := range n.racks {
		r, err := l.startRack(i)
		if err != nil {
			return nil, err
		}
		l.racks = append(l.racks, r)
	}
	l.startBMCs()
	for i := range n.resumers {
		l.feeds.Go(func() { l.resume(fmt.Sprint("resumer", i)) })
	}
	for id := range n.steady {
		l.workers.Go(func() { l.steady(id) })
	}
	if n.steady > 0 {
		l.sections = steadySection
	}
	l.workers.Go(l.followAgain)
	l.workers.Go(l.pulse)
	for id := range n.writers {
		l.workers.Go(func() { l.write(id) })
	}
	l.workers.Go(l.bootPulse)
	for id := range n.clients {
		l.workers.Go(func() { l.lease(id) })
	}
	if n.each > 0 {
		l.tickets = time.Tick(n.each)
	}
	for i := range n.loops {
		l.workers.Go(func() { l.provision(i) })
	}
	for i := range n.late {
		l.workers.Go(func() { l.late(i) })
	}
	return l, nil
}

// dice returns a worker's own random numbers.
func (l *load) dice(worker string) *rand.Rand {
	var n uint64
	for _, c := range worker {
		n = n*31 + uint64(c)
	}
	return rand.New(rand.NewPCG(l.history.Seed, n))
}

// over reports whether the workers have to end.
func (l *load) over() bool {
	select {
	case <-l.end:
		return true
	case <-l.ctx.Done():
		return true
	default:
		return false
	}
}

// pause waits for a time, or until the end.
func (l *load) pause(d time.Duration) {
	select {
	case <-l.end:
	case <-l.ctx.Done():
	case <-time.After(d):
	}
}

func meta(name string) trivet.Meta { return trivet.Meta{Name: name} }

// prepare creates what an operator would have: a network, a platform, an image, templates, machines.
func (l *load) prepare(ctx context.Context, n size) error {
	c := l.sdk
	kernel, err := l.put(ctx, bytes.Repeat([]byte("kernel"), 10_000))
	if err != nil {
		return err
	}
	raw := bytes.Repeat([]byte("an image's bytes "), 100_000)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return err
	}
	image, err := l.put(ctx, enc.EncodeAll(raw, nil))
	if err != nil {
		return err
	}
	host := func(a, b byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 99, a, b}) }
	short := trivet.Limit{Timeout: trivet.Duration(lateAfter), Retries: new(0)}
	again := func(after time.Duration) trivet.Limit {
		return trivet.Limit{Timeout: trivet.Duration(after), Retries: new(9)}
	}
	noop := func(name, sleep string) trivet.Action {
		return trivet.Action{Name: name, Use: "noop", With: map[string]any{"sleep": sleep}}
	}
	install := []trivet.Action{
		{Name: "wipe", Use: "wipe", Retries: 1},
		{Name: "image", Use: "image", With: map[string]any{"image": "sim"}, Retries: 5,
			Backoff: trivet.Duration(time.Second)},
		noop("think", "300ms"),
		{Name: "motd", Use: "file", With: map[string]any{"path": "/etc/motd", "content": "{{.Provision.Name}}\n"}},
		noop("more", "300ms"),
		{Name: "seed", Use: "seed"},
		{Name: "reboot", Use: "reboot"},
	}
	for _, r := range []trivet.Record{
		&trivet.Platform{Meta: meta("sim"), Spec: trivet.PlatformSpec{Arch: "amd64", Version: "simulated",
			Kernel: kernel, Initrd: kernel}},
		&trivet.Image{Meta: meta("sim"), Spec: trivet.ImageSpec{Blob: image, Format: "raw", Compression: "zstd",
			RawBytes: int64(len(raw))}},
		&trivet.Network{Meta: meta("site"), Spec: trivet.NetworkSpec{
			CIDR: subnet, Unknown: "address-only", Ranges: []trivet.Range{{From: host(128, 1), To: host(159, 254)}}}},
		&trivet.Template{Meta: meta("install"), Spec: trivet.TemplateSpec{Actions: install}},
		&trivet.Template{Meta: meta("install-managed"), Spec: trivet.TemplateSpec{Actions: install,
			Limits: map[string]trivet.Limit{
				trivet.StepDHCP: again(20 * time.Second), trivet.StepScript: again(20 * time.Second),
				trivet.StepKernel: again(30 * time.Second), trivet.StepHello: again(30 * time.Second),
				trivet.StepFirstBoot: again(30 * time.Second)}}},
		&trivet.Template{Meta: meta("never"), Spec: trivet.TemplateSpec{
			Limits: map[string]trivet.Limit{trivet.StepDHCP: short}, Actions: []trivet.Action{noop("nothing", "1s")}}},
	} {
		if err := l.make(ctx, r); err != nil {
			return err
		}
	}
	err = l.make(ctx, &trivet.Site{Meta: meta(trivet.SiteName)}) // a join may have created it
	_, errSite := client.Of[trivet.Site](c).Patch(ctx, trivet.SiteName, []byte(`{"spec":{"platform":"sim"}}`), 0)
	return errors.Join(err, errSite, l.prepareBystanders(ctx, n.bystanders), l.prepareKeys(ctx),
		l.prepareMachines(ctx, n))
}

// put stores a blob; the heads replicate it.
func (l *load) put(ctx context.Context, content []byte) (trivet.BlobRef, error) {
	return l.sdk.PutBlob(ctx, bytes.NewReader(content), client.PutOptions{})
}

// make creates a record.
func (l *load) make(ctx context.Context, r trivet.Record) error {
	info, err := trivet.LookupKind(string(trivet.KindOf(r)))
	if err != nil {
		return err
	}
	if _, err := l.sdk.Kind(info).Create(ctx, r); err != nil && !errors.Is(err, trivet.ErrExists) {
		return err
	}
	return nil
}

func (l *load) prepareMachines(ctx context.Context, n size) error {
	named := func(name string, mac string) error {
		return l.make(ctx, &trivet.Machine{Meta: meta(name), Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}}})
	}
	errs := []error{l.prepareSecret(ctx)}
	for i := range n.racks * n.machines {
		labels := map[string]string{"pool": poolOf(i, n.racks, n.managed)}
		m := &trivet.Machine{Meta: trivet.Meta{Name: machineName(i), Labels: labels},
			Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: machineMAC(1, i)}}}}
		if isManaged(i, n.racks, n.managed) {
			m.Spec.BMC = &trivet.BMC{Protocol: bmc.Redfish, Address: bmcAddress(i, n.racks), Secret: bmcSecret}
		}
		errs = append(errs, l.make(ctx, m))
	}
	errs = append(errs, named("pulse", pulseMAC))
	for i := range n.clients {
		errs = append(errs, named(fmt.Sprint("client", i), machineMAC(2, i)))
	}
	for i := range n.late {
		errs = append(errs, named(fmt.Sprint("late", i), machineMAC(3, i)))
	}
	return errors.Join(errs...)
}

var pulseMAC = machineMAC(4, 0)

func machineName(i int) string { return fmt.Sprintf("m%02d", i) }

func machineMAC(group, i int) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", group, i>>8&0xff, i&0xff)
}
