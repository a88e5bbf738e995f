package dashboards_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// site is three heads with simulated machines.
type site struct {
	*testing.T
	heads []*testhead.Head
	cl    *client.Client
}

// What is provisioned: two waves of machines, one machine that does not boot and is replaced, a provision whose machine
// is in no network that its template could use, and one for which there is no machine; and a schedule of backups that
// fails, as does the bucket of images.
const (
	wave   = 4
	active = 2*wave + 1
)

const siteRecords = `
kind: Network
name: loopback
spec: {cidr: 127.0.0.0/8, ranges: [{from: 127.61.0.1, to: 127.61.0.250}]}
---
kind: Template
name: install
spec:
  actions:
  - {name: wipe, use: wipe}
  - {name: motd, use: file, with: {path: /etc/motd, content: "installed\n"}}
  - {name: rest, use: noop, with: {sleep: 1s}}
  - {name: seed, use: seed}
  - {name: reboot, use: reboot}
---
kind: Template
name: impatient
spec:
  limits: {dhcp: {timeout: 5s, retries: 1}}
  actions: [{name: seed, use: seed}, {name: reboot, use: reboot}]
---
kind: Template
name: asks
spec:
  actions: [{name: gateway, use: file, with: {path: /etc/gateway, content: "{{.Network.Gateway}}"}}]
---
kind: BackupSchedule
name: nightly
spec: {every: 24h, directory: missing}
---
kind: Secret
name: bucket
spec: {data: {accessKey: none, secretKey: none-of-any-server}}
---
kind: Site
name: site
spec: {blobs: {s3: {location: "s3://images/trivet", endpoint: "http://127.0.0.1:9", secret: bucket}}}
---
kind: Provision
name: queued
spec: {template: install, selector: {pool: none}}
---
kind: Secret
name: hook
spec: {data: {key: whsec_ZXhhbXBsZSBrZXksIHJlcGxhY2UgaXQgYnkgeW91ciBvd24=}}
---
kind: Machine
name: m0-off
labels: {pool: old}
spec: {nics: [{mac: "52:54:00:61:00:f0"}]}
---
kind: Machine
name: m1
spec: {nics: [{mac: "52:54:00:61:00:f1"}]}
`

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t}
	for i := range 3 {
		h := testhead.NewHead(t, fmt.Sprint("head", i))
		if i == 0 {
			h.Up()
		} else {
			h.Up("--join", s.heads[0].API(), "--token", s.heads[0].MustTrivet("head", "token"))
		}
		s.heads = append(s.heads, h)
	}
	s.cl = s.heads[0].Client(testhead.Timeout, s.heads...)
	blob, errBlob := s.cl.PutBlob(t.Context(), bytes.NewReader(bytes.Repeat([]byte("kernel"), 100_000)),
		client.PutOptions{})
	_, errPlatform := client.Of[trivet.Platform](s.cl).Create(t.Context(), &trivet.Platform{
		Meta: trivet.Meta{Name: "p"}, Spec: trivet.PlatformSpec{Arch: "amd64", Version: "v", Kernel: blob, Initrd: blob}})
	_, errSite := client.Of[trivet.Site](s.cl).Modify(t.Context(), trivet.SiteName, func(site *trivet.Site) error {
		site.Spec.Platform = "p"
		return nil
	})
	if err := errors.Join(errBlob, errPlatform, errSite); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	s.heads[0].Apply(siteRecords + "---\n{kind: Notifier, name: ops, spec: {webhook: {url: '" + receiver.URL +
		"', secret: hook}}}\n")
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		get := testhead.Command("", testhead.Program(t), "get", "provisions", "-o", "yaml")
		r, err := testhead.CLI(context.Background(), get, s.heads[0].AdminFile()) // the context of the test has ended
		t.Logf("the provisions: %s, %v", r.All, err)
	})
	return s
}

// install provisions machines, and waits until what a Prometheus has counted is what has happened.
func (s *site) install(p *prometheus) {
	s.Helper()
	var machines []*lab.Machine
	for i := range active {
		pool := "new"
		if i == 0 {
			pool = "old" // it replaces the one that is off
		}
		m := &lab.Machine{Name: fmt.Sprintf("m%d", i+2), MAC: fmt.Sprintf("52:54:00:61:00:%02x", i), Dir: s.TempDir(),
			Log: slog.New(slog.DiscardHandler), Up: func() {}}
		for j := range s.heads {
			m.DHCP = append(m.DHCP, s.heads[(i+j)%len(s.heads)].Address+":7067")
		}
		machines = append(machines, m)
		s.heads[0].Apply(fmt.Sprintf("kind: Machine\nname: %s\nlabels: {pool: %s}\nspec: {nics: [{mac: %q}]}\n",
			m.Name, pool, m.MAC))
	}
	s.heads[1].MustBoot(machines[0].MAC) // with TFTP, which simulated machines do not use
	s.provision("wrong", "template: asks, machine: m1")
	s.provision("replaced", "template: impatient, selector: {pool: old}")
	ctx, off := context.WithCancel(context.Background())
	var running sync.WaitGroup
	s.Cleanup(func() { off(); running.Wait() })
	for _, m := range machines {
		running.Go(func() { _ = m.Run(ctx) })
	}
	s.provisionWave("first")
	p.awaitValue(`sum(trivet_provisions_total{outcome="succeeded"})`, wave+1)
	p.awaitValue(`sum(trivet_provisions_total{outcome="failed",cause="configuration"})`, 1)
	p.awaitValue(`sum(trivet_provisions_total)`, wave+2)
	p.awaitValue(`sum(trivet_runs_total{outcome="failed",cause="machine"})`, 1)
	p.awaitValue(`sum(trivet_provision_switches_total)`, 1)
	p.awaitValue(`sum(trivet_step_retries_total{step="dhcp"})`, 1)
	p.awaitValue(`sum(trivet_step_seconds_count{step="wipe",result="done"})`, wave)
}

func (s *site) provision(name, spec string) {
	s.Helper()
	s.heads[0].Apply(fmt.Sprintf("kind: Provision\nname: %s\nspec: {%s}\n", name, spec))
}

func (s *site) provisionWave(name string) {
	s.Helper()
	for i := range wave {
		s.provision(fmt.Sprint(name, "-", i), "template: install, selector: {pool: new}")
	}
}

// killAHead kills the leader while machines install, and starts it again.
func (s *site) killAHead(p *prometheus) {
	s.Helper()
	s.provisionWave("second")
	leader := s.leader()
	leader.Kill()
	p.awaitValue(`sum(up{job="trivet"})`, 2)
	p.awaitValue(`sum(trivet_store_leader)`, 1) // another one
	leader.Up()
	p.awaitTargets("head0", "head1", "head2")
	p.awaitValue(`max(trivet_machines{state="active"})`, active)
}

func (s *site) leader() *testhead.Head {
	s.Helper()
	view, err := s.cl.Cluster(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	for _, v := range view.Heads {
		for _, h := range s.heads {
			if v.State == "leader" && v.Name == h.Name {
				return h
			}
		}
	}
	s.Fatalf("no leader: %+v", view.Heads)
	return nil
}

// checkRecords compares the gauges of each head with the records.
func (p *prometheus) checkRecords(s *site) {
	p.Helper()
	machines, provisions := map[trivet.MachineState]int{}, map[trivet.ProvisionState]int{}
	list, _, err := client.Of[trivet.Machine](s.cl).List(p.Context(), client.ListOptions{})
	for _, m := range list {
		machines[m.Status.State]++
	}
	requests, _, errP := client.Of[trivet.Provision](s.cl).List(p.Context(), client.ListOptions{})
	for _, r := range requests {
		provisions[r.Status.State]++
	}
	if err := errors.Join(err, errP); err != nil {
		p.Fatal(err)
	}
	if machines[trivet.MachineActive] != active || provisions[trivet.ProvisionPending] != 1 {
		p.Errorf("the machines are %v, the provisions %v", machines, provisions)
	}
	for state, n := range machines {
		for _, of := range []string{"min", "max"} {
			p.awaitValue(fmt.Sprintf(`%s(trivet_machines{state=%q})`, of, state), float64(n))
		}
	}
	for state, n := range provisions {
		p.awaitValue(fmt.Sprintf(`max(trivet_provision_records{state=%q})`, state), float64(n))
	}
	p.awaitValue(`sum(max by (model) (trivet_machines_by_model))`, float64(len(list)))
	p.awaitValue(`max(trivet_machines_by_model{model="Trivet simulated machine"})`, active)
}
