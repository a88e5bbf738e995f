package lab

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/lab/grade"
	"github.com/trivet-project/trivet/internal/server"
)

// Demo runs a whole site on one computer: heads and simulated machines.
type Demo struct {
	Machines int
	Heads    int    // more than one run as separate processes
	Kill     bool   // kill heads, one after the other, while machines install
	Program  string // that runs a head as "PROGRAM server ..."; empty: this one
	// Scenario is "install"; "faults", where much is wrong with the machines; or "recovery", see Recover; empty:
	// "install".
	Scenario string
	Cases    []string // of the scenario "recovery"; nil: all
	Seed     uint64   // of what is wrong
	Timeout  time.Duration
	JSON     bool   // print one line at the end instead of the progress
	History  string // file of all acknowledged writes, actions and faults; empty: none
	Dir      string // empty: a temporary directory, removed afterwards
	Version  string
	Out, Err io.Writer // Err gets messages before the progress is shown
	Log      *slog.Logger
	api      string // where the head listens; empty: on a free port of 127.0.0.1
	standby  bool   // the second head is a standby
}

// The scenarios.
const (
	ScenarioInstall  = "install"
	ScenarioFaults   = "faults"
	ScenarioRecovery = "recovery"
)

// ErrIncomplete: not all machines were installed.
var ErrIncomplete = errors.New("not all machines were installed")

// Run runs the demo and returns its results.
func (d *Demo) Run(ctx context.Context) (Summary, error) {
	done, err := d.begin()
	if err != nil {
		return Summary{}, err
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	if d.Heads == 1 && !d.Kill {
		head, err := startHead(ctx, d)
		if err != nil {
			return Summary{}, err
		}
		defer head.close()
		return d.provide(ctx, &demoSite{client: head.client, dhcp: []string{head.dhcp}})
	}
	heads, err := startHeads(ctx, d)
	if err != nil {
		return Summary{}, err
	}
	defer heads.close()
	return d.provide(ctx, &demoSite{client: heads.client, dhcp: heads.dhcp(), heads: heads})
}

// begin validates the options and creates the directory. The function that it returns removes it.
func (d *Demo) begin() (done func(), err error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	if d.Dir != "" {
		return func() {}, nil
	}
	d.Dir, err = os.MkdirTemp("", "trivet-demo-")
	return func() { _ = os.RemoveAll(d.Dir) }, err
}

func (d *Demo) validate() error {
	switch {
	case d.Machines < 1 || d.Machines > 10000:
		return &trivet.FieldError{Field: "--machines", Problem: fmt.Sprintf("is %d; must be 1 to 10000", d.Machines)}
	case d.Heads < 1 || d.Heads > 9:
		return &trivet.FieldError{Field: "--heads", Problem: fmt.Sprintf("is %d; must be 1 to 9", d.Heads)}
	case d.Kill && d.Heads < 3:
		return &trivet.FieldError{Field: "--kill",
			Problem: "requires --heads 3 or more: with fewer, a killed head leaves no majority"}
	case d.Kill && d.Machines < totalKills:
		return &trivet.FieldError{Field: "--kill",
			Problem: fmt.Sprintf("requires --machines %d or more, so that some install during each kill", totalKills)}
	case d.Scenario != "" && !slices.Contains([]string{ScenarioInstall, ScenarioFaults, ScenarioRecovery}, d.Scenario):
		return &trivet.FieldError{Field: "--scenario", Problem: fmt.Sprintf("is %q; must be %s, %s or %s", d.Scenario,
			ScenarioInstall, ScenarioFaults, ScenarioRecovery)}
	case d.Scenario != ScenarioRecovery && len(d.Cases) > 0:
		return &trivet.FieldError{Field: "--case", Problem: "is for scenario recovery only"}
	case d.Scenario == ScenarioFaults && d.Machines < grade.MinMachines:
		return &trivet.FieldError{Field: "--machines",
			Problem: fmt.Sprintf("is %d; scenario faults requires %d or more, so that each fault occurs", d.Machines,
				grade.MinMachines)}
	case d.dirUsed():
		return &trivet.FieldError{Field: "--dir",
			Problem: fmt.Sprintf("%s contains an earlier demo; use an empty directory", d.Dir)}
	case d.Scenario == ScenarioRecovery:
		return d.checkRecovery()
	}
	return nil
}

// dirUsed reports whether the directory has the data of an earlier demo.
func (d *Demo) dirUsed() bool {
	if d.Dir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(d.Dir, "head0"))
	_, errRecovery := os.Stat(filepath.Join(d.Dir, recoveryCases[0].name))
	return err == nil || errRecovery == nil
}

// status prints a message about a step that takes a while.
func (d *Demo) status(format string, args ...any) {
	if !d.JSON {
		fmt.Fprintf(d.Err, format+"\n", args...)
	}
}

// demoSite is the heads of a demo.
type demoSite struct {
	client *client.Client
	dhcp   []string
	heads  *headProcesses // nil: one head, in this process
}

// provide runs the scenario on heads.
func (d *Demo) provide(ctx context.Context, on *demoSite) (Summary, error) {
	if d.Scenario == ScenarioFaults {
		return d.failover(ctx, on)
	}
	return d.install(ctx, on)
}

// install prepares the site, powers all machines on, and waits until all provisions have ended.
func (d *Demo) install(ctx context.Context, on *demoSite) (Summary, error) {
	began := time.Now()
	err := prepare(ctx, on.client, d.Kill)
	if err == nil && d.Kill {
		// The boot script of this machine is fetched all the time; for a machine that installs, a fetch would be a
		// reset.
		err = record(ctx, on.client, "probe", trivet.NIC{MAC: macOf(d.Machines), Address: probeAddress})
	}
	if err != nil {
		return Summary{}, fmt.Errorf("prepare the site: %w", err)
	}
	names := make([]string, d.Machines)
	for i := range names {
		names[i] = fmt.Sprintf("demo%04d", i+1)
	}
	progress, err := newTracker(d, on.client, names)
	if err != nil {
		return Summary{}, err
	}
	var faults *faultInjector
	if d.Kill {
		faults = newFaultInjector(on.heads, progress, macOf(d.Machines))
	}
	err = d.run(ctx, on, names, progress, faults)
	summary := progress.summary(time.Since(began))
	if faults != nil && err == nil {
		summary.Faults, err = faults.summary(ctx)
	}
	summary.Repeated, err = repeated(d.Dir, names, err)
	return summary, errors.Join(err, progress.close())
}

// run runs the machines until all provisions have ended.
func (d *Demo) run(ctx context.Context, on *demoSite, names []string, progress *tracker, faults *faultInjector) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	g, run := errgroup.WithContext(run)
	recorded := make(chan struct{}) // a machine that boots before its record exists would enrol under another name
	g.Go(func() error {
		defer close(recorded)
		return createRecords(run, on.client, names)
	})
	for i, name := range names {
		g.Go(func() error {
			<-recorded
			if faults != nil {
				select {
				case <-faults.gate(i, len(names)):
				case <-run.Done():
				}
			}
			dhcp := slices.Concat(on.dhcp[i%len(on.dhcp):], on.dhcp)
			m := &Machine{Name: name, MAC: macOf(i), Dir: d.Dir, DHCP: dhcp, Log: d.Log, Up: func() {}}
			return m.Run(run)
		})
	}
	if faults != nil {
		g.Go(func() error {
			<-recorded
			return faults.run(run)
		})
	}
	err := progress.watch(run)
	stop()
	return errors.Join(err, g.Wait())
}

// head is a real head on loopback.
type head struct {
	client *client.Client
	dhcp   string
	stop   context.CancelFunc
	done   sync.WaitGroup
	err    error
}

func startHead(ctx context.Context, d *Demo) (*head, error) {
	programs := filepath.Join(d.Dir, "ipxe")
	if err := simulatedPrograms(programs); err != nil {
		return nil, err
	}
	api := cmp.Or(d.api, "127.0.0.1:0")
	host, _, err := net.SplitHostPort(api)
	if err != nil {
		return nil, err
	}
	s, err := server.New(ctx, server.Config{
		Dir: filepath.Join(d.Dir, "head0"), Name: "head0", Version: d.Version, API: api, Boot: host + ":0",
		DHCPAddress: host + ":0", Advertise: []string{host}, IPXEDir: programs, Log: d.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("start the head: %w", err)
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &head{dhcp: s.DHCPAddr().String(), stop: stop}
	h.done.Go(func() {
		h.err = s.Run(run)
		s.Close()
	})
	file, err := client.ReadFile(server.AdminFile(filepath.Join(d.Dir, "head0")))
	if err == nil {
		c, _ := file.Pick("")
		h.client, err = client.New(client.Config{Endpoints: c.Endpoints, Trust: c.Trust, Token: c.Token,
			UserAgent: "trivet-demo"})
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *head) close() {
	h.stop()
	h.done.Wait()
	if h.client != nil {
		h.client.Close()
	}
}

// simulatedPrograms writes placeholders for the iPXE programs. The simulated firmware is iPXE and never loads them.
func simulatedPrograms(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for _, name := range []string{"undionly.kpxe", "ipxe.efi", "snponly.efi"} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), []byte("simulated\n"), 0o644))
	}
	return errors.Join(errs...)
}

// prepare creates the records of a site: a network, a platform, an image, a template.
func prepare(ctx context.Context, c *client.Client, slow bool) error {
	kernel, err := c.PutBlob(ctx, bytes.NewReader(content(256<<10)), client.PutOptions{})
	if err != nil {
		return err
	}
	initrd, err := c.PutBlob(ctx, bytes.NewReader(content(512<<10)), client.PutOptions{})
	if err != nil {
		return err
	}
	raw := content(4 << 20)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		return err
	}
	image, err := c.PutBlob(ctx, bytes.NewReader(enc.EncodeAll(raw, nil)), client.PutOptions{})
	if err != nil {
		return err
	}
	meta := func(name string) trivet.Meta { return trivet.Meta{Name: name} }
	_, errPlatform := client.Of[trivet.Platform](c).Create(ctx, &trivet.Platform{Meta: meta("demo"),
		Spec: trivet.PlatformSpec{Arch: "amd64", Version: "simulated", Kernel: kernel, Initrd: initrd}})
	_, errImage := client.Of[trivet.Image](c).Create(ctx, &trivet.Image{Meta: meta("demo"), Spec: trivet.ImageSpec{
		Blob: image, Format: "raw", Compression: "zstd", RawBytes: int64(len(raw))}})
	errSite := setSite(ctx, c, trivet.SiteSpec{Platform: "demo", Accept: true})
	networks := client.Of[trivet.Network](c)
	_, errNetwork := networks.Create(ctx, &trivet.Network{Meta: meta("loopback"), Spec: trivet.NetworkSpec{
		CIDR:   netip.MustParsePrefix("127.0.0.0/8"),
		Ranges: []trivet.Range{{From: netip.MustParseAddr("127.77.0.1"), To: netip.MustParseAddr("127.77.255.254")}}}})
	rest := map[string]any{"sleep": "0s"}
	if slow {
		rest["sleep"] = "1s"
	}
	templates := client.Of[trivet.Template](c)
	_, errTemplate := templates.Create(ctx, &trivet.Template{Meta: meta("demo"), Spec: trivet.TemplateSpec{
		Description: "wipe, write an image, seed cloud-init, reboot",
		Actions: []trivet.Action{
			{Name: "wipe", Use: "wipe", Retries: 1},
			{Name: "image", Use: "image", With: map[string]any{"image": "demo"}, Retries: 2},
			{Name: "motd", Use: "file", With: map[string]any{"path": "/etc/motd",
				"content": "installed by {{.Provision.Name}}\n"}},
			{Name: "rest", Use: "noop", With: rest},
			{Name: "seed", Use: "seed"},
			{Name: "reboot", Use: "reboot"},
		}}})
	return errors.Join(errPlatform, errImage, errSite, errNetwork, errTemplate)
}

// setSite writes the site's configuration. The record may already exist.
func setSite(ctx context.Context, c *client.Client, spec trivet.SiteSpec) error {
	sites := client.Of[trivet.Site](c)
	_, err := sites.Create(ctx, &trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName}, Spec: spec})
	if errors.Is(err, trivet.ErrExists) {
		_, err = sites.Modify(ctx, trivet.SiteName, func(s *trivet.Site) error { s.Spec = spec; return nil })
	}
	return err
}

// createRecords creates a machine and a provision for each name.
func createRecords(ctx context.Context, c *client.Client, names []string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for i, name := range names {
		g.Go(func() error {
			if err := record(ctx, c, name, trivet.NIC{MAC: macOf(i)}); err != nil {
				return err
			}
			_, err := client.Of[trivet.Provision](c).Create(ctx, &trivet.Provision{
				Meta: trivet.Meta{Name: name}, Spec: trivet.ProvisionSpec{Template: "demo", Machine: name}})
			return err
		})
	}
	return g.Wait()
}

// record creates the record of a machine.
func record(ctx context.Context, c *client.Client, name string, nic trivet.NIC) error {
	_, err := client.Of[trivet.Machine](c).Create(ctx, &trivet.Machine{
		Meta: trivet.Meta{Name: name, Labels: map[string]string{"demo": "true"}},
		Spec: trivet.MachineSpec{NICs: []trivet.NIC{nic}}})
	return err
}

// macOf returns the MAC of the i-th machine, from QEMU's range.
func macOf(i int) string {
	return fmt.Sprintf("52:54:00:%02x:%02x:%02x", i>>16&0xff, i>>8&0xff, i&0xff)
}

// content returns pseudo-random data, which does not compress well.
func content(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32() & 0x3f)
	}
	return b
}
