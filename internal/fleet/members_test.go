package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/fleet"
	"github.com/trivet-project/trivet/internal/provision"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

var inPool = map[string]string{"pool": "many"}

// newManyRack returns a rack with machines x001 and so on, of a cluster whose heads all have this release.
func newManyRack(t *testing.T, machines int) *rack {
	t.Helper()
	return manyRackOn(t, storetest.Member(t), store.Options{}, machines)
}

func manyRackOn(t *testing.T, m *cluster.Member, opts store.Options, machines int) *rack {
	t.Helper()
	r := &rack{t, fleet.New(storetest.On(t, m, opts, state.New), "head0")}
	r.write(func(tx *store.Tx) error {
		return errors.Join(
			r.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
				Status: trivet.SiteStatus{ClusterVersion: trivet.CurrentRelease}}),
			r.Templates.In(tx).Create(&trivet.Template{Meta: trivet.Meta{Project: "default", Name: "t"},
				Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: "work", Use: "seed"},
					{Name: "reboot", Use: "reboot"}}}}))
	})
	r.many(machines, func(tx *store.Tx, i int) error {
		mac := macOf(i + 1)
		return errors.Join(
			r.Machines.In(tx).Create(&trivet.Machine{Meta: trivet.Meta{Name: fmt.Sprintf("x%03d", i+1), Labels: inPool},
				Spec:   trivet.MachineSpec{NICs: []trivet.NIC{{MAC: mac}}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}),
			r.MACs.In(tx).Create(&trivet.MAC{Meta: trivet.Meta{Name: mac},
				Spec: trivet.MACSpec{Machine: fmt.Sprintf("x%03d", i+1)}}))
	})
	return r
}

func macOf(n int) string { return fmt.Sprintf("52:54:00:00:%02x:%02x", 0x40+n/256, n%256) }

// request creates a provision with members.
func (r *rack) request(name string, count, maxInFlight int) {
	r.Helper()
	r.waits(name, trivet.ProvisionSpec{Selector: inPool, Count: &count, MaxInFlight: maxInFlight})
}

// settle does what the controllers do, until there is nothing to do: it creates and deletes members, and claims
// machines.
func (r *rack) settle(name string) {
	r.Helper()
	for more := true; more; {
		var err error
		more, err = r.SettleMembers(r.Context(), "default/"+name)
		r.must(err)
	}
	for p := range r.Provisions.AllShared() {
		for err := trivet.ErrConflict; p.Waits() && errors.Is(err, trivet.ErrConflict); { // another one comes first
			if err = r.Claim(r.Context(), p.FullName()); !errors.Is(err, trivet.ErrConflict) {
				r.must(err)
			}
		}
	}
}

// succeed lets the machine of a provision install and report.
func (r *rack) succeed(ctx context.Context, name string) error {
	p, err := r.Provisions.Get("default/" + name)
	if err != nil {
		return err
	}
	m, err := r.Machines.Get(p.Status.Machine)
	if err != nil {
		return err
	}
	mac, boot := m.Spec.NICs[0].MAC, fmt.Sprint("b", m.Status.Epoch)
	if _, err = r.Hello(ctx, &trivet.Hello{MAC: mac, Key: "k", BootID: boot},
		auth.BootToken{Machine: m.Name, MAC: mac, Epoch: m.Status.Epoch}); err != nil {
		return err
	}
	if m, err = r.Machines.Get(m.Name); err != nil {
		return err
	}
	if err := r.Report(ctx, &trivet.Sync{Machine: m.Name, Epoch: m.Status.Epoch, BootID: boot,
		Reports: []trivet.Report{{Seq: 1, Action: "work", Attempt: 1, State: trivet.StepDone},
			{Seq: 2, Action: "reboot", Attempt: 1, State: trivet.StepDone}}}); err != nil {
		return err
	}
	w, err := r.Workflows.Get(trivet.Resolve("", m.Status.Workflow))
	if err != nil {
		return err
	}
	return r.PhoneHome(ctx, auth.BootToken{Machine: m.Name, Epoch: m.Status.Epoch, Run: w.UID}, nil)
}

// fail ends the run of a provision, and makes its machine available again.
func (r *rack) fail(ctx context.Context, name string) error {
	p, err := r.Provisions.Get("default/" + name)
	if err != nil {
		return err
	}
	return errors.Join(r.Quarantine(ctx, p.Status.Machine, "noise"), r.Accept(ctx, p.Status.Machine))
}

// wantMembers compares the state of a provision and its members, as "web-1 running, web-2 pending".
func (r *rack) wantMembers(name, state string, members string) {
	r.Helper()
	parent := r.provisionNamed(name)
	var all []string
	var counted trivet.MemberCounts
	for p := range r.Provisions.AllShared() {
		if p.Status.MemberOf != name {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s", p.Name, p.Status.State))
		counted, _ = provision.Move(&trivet.ProvisionSpec{}, counted, provision.NoMember,
			provision.StateOfMember(&p.Status))
	}
	if got := strings.Join(all, ", "); got != members || string(parent.Status.State) != state {
		r.Errorf("%s is %s (%s) with %s; want %s with %s", name, parent.Status.State, parent.Status.Reason, got, state,
			members)
	}
	if parent.Status.Members != counted {
		r.Errorf("%s has %+v, and counts %+v", name, counted, parent.Status.Members)
	}
}

// A provision with a count has a member for each machine, and at most as many in flight as it permits. It ends with the
// last one, and goes on where it is to have more.
func TestMembers(t *testing.T) {
	r := newManyRack(t, 5)
	three := 3
	r.waits("web", trivet.ProvisionSpec{Selector: inPool, Count: &three, MaxInFlight: 2, Hostname: "w.example.com"})
	r.settle("web")
	r.wantMembers("web", "running", "web-1 running, web-2 running")
	if p := r.provisionNamed("web-2"); p.Spec.Count != nil || p.Spec.MaxInFlight != 0 || p.Spec.Template != "t" ||
		p.Spec.Hostname != "w-2.example.com" ||
		p.Status.MemberOfUID != r.provisionNamed("web").UID {
		t.Errorf("a member: %+v, %+v", p.Spec, p.Status)
	}
	r.must(r.succeed(t.Context(), "web-1"))
	r.wantMembers("web", "running", "web-1 succeeded, web-2 running")
	r.settle("web")
	r.must(r.succeed(t.Context(), "web-2"))
	r.wantMembers("web", "running", "web-1 succeeded, web-2 succeeded, web-3 running")
	r.must(r.fail(t.Context(), "web-3"))
	r.wantMembers("web", "failed", "web-1 succeeded, web-2 succeeded, web-3 failed")
	if p := r.provisionNamed("web"); p.Status.Ended.IsZero() || p.Status.Started.IsZero() || p.Status.Machine != "" {
		t.Errorf("the ended provision: %+v", p.Status)
	}
	r.leave("web-3")
	r.settle("web")
	r.wantMembers("web", "running", "web-1 succeeded, web-2 succeeded, web-3 running")
	if p := r.provisionNamed("web"); !p.Status.Ended.IsZero() {
		t.Errorf("it goes on: %+v", p.Status)
	}
	r.must(r.succeed(t.Context(), "web-3"))
	r.wantMembers("web", "succeeded", "web-1 succeeded, web-2 succeeded, web-3 succeeded")
	r.scale("web", 4, 2)
	r.settle("web")
	r.wantMembers("web", "running", "web-1 succeeded, web-2 succeeded, web-3 succeeded, web-4 running")
}

// leave deletes a member as a request of the API does.
func (r *rack) leave(name string) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		p, err := r.Provisions.In(tx).Get("default/" + name)
		if err != nil {
			return err
		}
		return errors.Join(r.Leave(tx, p), r.Release(tx, p), r.Provisions.In(tx).Delete(p.FullName()))
	})
}

func (r *rack) scale(name string, count, maxInFlight int) {
	r.Helper()
	r.write(func(tx *store.Tx) error {
		p, err := r.Provisions.In(tx).Get("default/" + name)
		if err != nil {
			return err
		}
		p.Spec.Count, p.Spec.MaxInFlight = &count, maxInFlight
		return r.Provisions.In(tx).Put(p)
	})
}

// Where there are to be fewer members, those that wait are deleted first, those with the highest numbers first, then
// those that have failed, and none that has a machine.
func TestFewerMembers(t *testing.T) {
	r := newManyRack(t, 3)
	r.request("web", 6, 0)
	r.settle("web")
	r.must(r.succeed(t.Context(), "web-1"))
	r.must(r.fail(t.Context(), "web-2")) // whose machine goes to the next one
	r.settle("web")
	all := "web-1 succeeded, web-2 failed, web-3 running, web-4 running, web-5 pending, web-6 pending"
	r.wantMembers("web", "running", all)
	r.scale("web", 5, 0)
	r.settle("web")
	r.wantMembers("web", "running", strings.TrimSuffix(all, ", web-6 pending"))
	r.scale("web", 4, 0)
	r.settle("web")
	r.wantMembers("web", "running", strings.TrimSuffix(all, ", web-5 pending, web-6 pending"))
	r.scale("web", 1, 0)
	r.settle("web")
	r.wantMembers("web", "running", "web-1 succeeded, web-3 running, web-4 running")
	r.must(r.succeed(t.Context(), "web-3"))
	r.must(r.fail(t.Context(), "web-4"))
	r.settle("web")
	r.wantMembers("web", "succeeded", "web-1 succeeded, web-3 succeeded")
}

// Fewer in flight than before: those that wait are deleted until as many run as may, and come back later. Meanwhile
// none of them is given a machine.
func TestFewerInFlight(t *testing.T) {
	r := newManyRack(t, 2)
	r.request("web", 5, 0)
	r.settle("web")
	r.wantMembers("web", "running",
		"web-1 running, web-2 running, web-3 pending, web-4 pending, web-5 pending")
	r.scale("web", 5, 1)
	r.must(r.fail(t.Context(), "web-1"))
	r.must(r.Claim(t.Context(), "default/web-3"))
	r.must(r.Offer(t.Context(), "x001"))
	r.wantMembers("web", "running", "web-1 failed, web-2 running, web-3 pending, web-4 pending, web-5 pending")
	r.settle("web")
	r.wantMembers("web", "running", "web-1 failed, web-2 running")
	r.must(r.succeed(t.Context(), "web-2"))
	r.settle("web")
	r.wantMembers("web", "running", "web-1 failed, web-2 succeeded, web-3 running")
}

// Where the first ones fail and none succeeds, no more machines are used.
func TestMembersThatOnlyFail(t *testing.T) {
	r := newManyRack(t, 9)
	r.request("web", 8, 3)
	r.settle("web")
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		r.must(r.fail(t.Context(), name))
	}
	r.settle("web")
	r.wantMembers("web", "failed", "web-1 failed, web-2 failed, web-3 failed")
	r.leave("web-2")
	r.settle("web")
	r.wantMembers("web", "running", "web-1 failed, web-3 failed, web-4 running, web-5 running, web-6 running")
}

// The members of a deleted provision are deleted and release their machines. Until then none of them is given one, and
// another provision of the name has members of its own.
func TestMembersOfADeletedProvision(t *testing.T) {
	r := newManyRack(t, 2)
	r.request("web", 3, 0)
	r.settle("web")
	r.wantMembers("web", "running", "web-1 running, web-2 running, web-3 pending")
	r.write(func(tx *store.Tx) error { return r.Provisions.In(tx).Delete("default/web") })
	r.free(1, inPool)
	r.must(r.Claim(t.Context(), "default/web-3"))
	r.must(r.Offer(t.Context(), "free1"))
	if p := r.provisionNamed("web-3"); p.Status.State != trivet.ProvisionPending {
		t.Errorf("a member of a deleted provision: %+v", p.Status)
	}
	r.request("web", 1, 0)
	r.settle("web")
	r.wantMembers("web", "running", "web-1 running")
	r.write(func(tx *store.Tx) error { return r.Provisions.In(tx).Delete("default/web") })
	for more := true; more; {
		var err error
		more, err = r.SettleMembers(t.Context(), "default/web")
		r.must(err)
	}
	for m := range r.Machines.AllShared() {
		if m.Status.State != trivet.MachineAvailable || m.Status.Provision != "" {
			t.Errorf("%s is %s for %q", m.Name, m.Status.State, m.Status.Provision)
		}
	}
	if n := r.Provisions.Len(); n != 0 {
		t.Errorf("%d provisions are left", n)
	}
}

// A member whose machine is at fault goes on with another one, and stays in flight. Another provision that has the name
// of a member keeps it.
func TestMemberGoesOnWithAnotherMachine(t *testing.T) {
	r := newManyRack(t, 0)
	r.waits("web-2", trivet.ProvisionSpec{Machine: "none"})
	r.request("web", 2, 0)
	r.write(func(tx *store.Tx) error {
		var errs []error
		for i := range 3 {
			errs = append(errs, r.Machines.In(tx).Create(&trivet.Machine{
				Meta: trivet.Meta{Name: fmt.Sprint("p", i), Labels: inPool},
				Spec: trivet.MachineSpec{NICs: []trivet.NIC{{MAC: macOf(i)}},
					BMC: &trivet.BMC{Protocol: "ipmi", Address: "10.0.0.9", Secret: "bmc"}},
				Status: trivet.MachineStatus{State: trivet.MachineAvailable}}))
		}
		return errors.Join(errs...)
	})
	r.settle("web")
	r.wantMembers("web", "running", "web-1 running, web-3 running")
	if _, p := r.failRunAt("web-1", trivet.StepPowerOn); p.Status.State != trivet.ProvisionPending {
		t.Fatalf("the member: %+v", p.Status)
	}
	r.wantMembers("web", "running", "web-1 pending, web-3 running")
	r.settle("web")
	r.wantMembers("web", "running", "web-1 running, web-3 running")
	if p := r.provisionNamed("web-1"); p.Status.Attempts != 2 || len(p.Status.Spent) != 1 {
		t.Errorf("the member: %+v", p.Status)
	}
}

// What two heads do at the same time is within maxInFlight at every revision, and all members end.
func TestMaxInFlightThroughTwoHeads(t *testing.T) {
	const count, most = 24, 4
	member := storetest.Member(t)
	a := manyRackOn(t, member, store.Options{}, count+2)
	b := &rack{t, fleet.New(storetest.On(t, member, store.Options{}, state.New), "head1")}
	began := a.Store.Revision()
	a.request("web", count, most)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() { []*rack{a, b}[worker%2].work(ctx, "web") })
	}
	wg.Wait()
	p := a.provisionNamed("web")
	if !p.Status.State.Ended() || p.Status.Members.Total() != count || p.Status.Members.Failed == 0 {
		t.Errorf("at the end: %+v", p.Status)
	}
	watch := a.Store.Watch(began, "Provision")
	members, revision, revisions := map[string]*trivet.Provision{}, int64(0), 0
	check := func() {
		var is trivet.MemberCounts
		var parent *trivet.Provision
		for _, p := range members {
			if p.Spec.Count != nil {
				parent = p
				continue
			}
			is, _ = provision.Move(&trivet.ProvisionSpec{}, is, provision.NoMember, provision.StateOfMember(&p.Status))
		}
		if is.InFlight() > most || parent != nil && parent.Status.Members != is {
			t.Errorf("at revision %d there are %+v, and %+v are counted", revision, is, parent.Status.Members)
		}
		revisions++
	}
	for {
		events, err := watch.Poll(t.Context())
		a.must(err)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.Revision != revision {
				check()
			}
			revision = e.Revision
			if members[e.Name], _ = e.Record().(*trivet.Provision); e.Deleted {
				delete(members, e.Name)
			}
		}
	}
	if check(); revisions < count {
		t.Errorf("only %d revisions were checked", revisions)
	}
}

// work does what is to be done about members until all have ended, as controllers and machines do. Of five one fails.
func (r *rack) work(ctx context.Context, name string) {
	for ctx.Err() == nil {
		parent, err := r.Provisions.Get("default/" + name)
		if err != nil || parent.Status.State.Ended() {
			return
		}
		r.tolerate(ctx, "settle", func() error {
			_, err := r.SettleMembers(ctx, "default/"+name)
			return err
		})
		for p := range r.Provisions.AllShared() {
			switch {
			case p.Waits():
				r.tolerate(ctx, "claim", func() error { return r.Claim(ctx, p.FullName()) })
			case p.Spec.Count == nil && p.Status.State == trivet.ProvisionRunning && p.MemberNumber()%5 == 0:
				r.tolerate(ctx, "fail", func() error { return r.fail(ctx, p.Name) })
			case p.Spec.Count == nil && p.Status.State == trivet.ProvisionRunning:
				r.tolerate(ctx, "succeed", func() error { return r.succeed(ctx, p.Name) })
			}
		}
	}
}

// tolerate ignores what another worker has done before.
func (r *rack) tolerate(ctx context.Context, what string, do func() error) {
	err := do()
	for _, known := range []error{trivet.ErrConflict, trivet.ErrFenced, trivet.ErrNotFound, trivet.ErrUnauthenticated,
		trivet.ErrInvalid, fleet.ErrTooOften} {
		if errors.Is(err, known) {
			return
		}
	}
	if err != nil && ctx.Err() == nil {
		r.Errorf("%s: %v", what, err)
	}
}

// Members that end at the same time are counted one after the other, and do not run their transactions again and again.
func TestMembersEndAtTheSameTime(t *testing.T) {
	const n = 40
	metrics := prometheus.NewRegistry()
	r := manyRackOn(t, storetest.Member(t), store.Options{Metrics: metrics}, n)
	r.request("web", n, 0)
	r.settle("web")
	before := reruns(t, metrics)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := r.Quarantine(t.Context(), r.provisionNamed(trivet.MemberName("web", i+1)).Status.Machine,
				"noise"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if p := r.provisionNamed("web"); p.Status.Members != (trivet.MemberCounts{Failed: n}) {
		t.Errorf("%+v", p.Status.Members)
	}
	if again := reruns(t, metrics) - before; again > 3*n {
		t.Errorf("%d transactions ran %.0f times more", n, again)
	}
}

func reruns(t *testing.T, metrics *prometheus.Registry) float64 {
	t.Helper()
	all, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == "trivet_store_conflicts_total" {
			return m.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatal("the metric is gone")
	return 0
}

// No code of the package writes a provision but putProvision and putCounts: the counts of members would be wrong.
func TestProvisionsAreWrittenInOnePlace(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	put := regexp.MustCompile(`Provisions\.In\([a-z.]+\)\.(Put|Create|Delete)\(`)
	n := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		if found := put.FindAllString(string(text), -1); name == "members.go" {
			n = len(found)
		} else if len(found) > 0 {
			t.Errorf("%s: %v: use putProvision", name, found)
		}
	}
	if n != 4 {
		t.Errorf("members.go writes provisions in %d places, want 4", n)
	}
}
