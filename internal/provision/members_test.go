package provision_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/provision"
)

func counts(waiting, running, succeeded, failed int) trivet.MemberCounts {
	return trivet.MemberCounts{Waiting: waiting, Running: running, Succeeded: succeeded, Failed: failed}
}

func many(count, maxInFlight int) *trivet.ProvisionSpec {
	return &trivet.ProvisionSpec{Count: &count, MaxInFlight: maxInFlight, Selector: map[string]string{"a": "b"}}
}

func TestPlanMembers(t *testing.T) {
	const create, waiting, failed = "create", "delete waiting", "delete failed"
	for _, c := range []struct {
		name               string
		count, maxInFlight int
		counts             trivet.MemberCounts
		what               string
		n                  int
	}{
		{"all at once", 20, 0, counts(0, 0, 0, 0), create, 20},
		{"as many as may be in flight", 20, 5, counts(0, 0, 0, 0), create, 5},
		{"one ended", 20, 5, counts(1, 3, 1, 0), create, 1},
		{"all in flight", 20, 5, counts(2, 3, 1, 0), "", 0},
		{"the last ones", 20, 5, counts(0, 0, 18, 0), create, 2},
		{"done", 20, 5, counts(0, 0, 20, 0), "", 0},
		{"a short queue", 20_000, 0, counts(60, 3, 0, 0), create, 40},
		{"a full queue", 20_000, 0, counts(100, 3, 0, 0), "", 0},
		{"fewer: those that wait first", 4, 0, counts(3, 2, 1, 2), waiting, 3},
		{"fewer: then the failed ones", 4, 0, counts(0, 2, 1, 2), failed, 1},
		{"fewer: not those with machines", 1, 0, counts(0, 2, 3, 0), "", 0},
		{"none", 0, 0, counts(1, 2, 3, 4), waiting, 1},
		{"fewer in flight", 20, 2, counts(3, 1, 0, 0), waiting, 2},
		{"fewer in flight than run", 20, 2, counts(3, 4, 0, 0), waiting, 3},
		{"the first ones fail", 20, 5, counts(0, 2, 0, 3), "", 0},
		{"one succeeded", 20, 5, counts(0, 2, 1, 3), create, 3},
	} {
		want := provision.Plan{}
		switch c.what {
		case create:
			want.Create = c.n
		case waiting:
			want.DeleteWaiting = c.n
		case failed:
			want.DeleteFailed = c.n
		}
		if got := provision.PlanMembers(many(c.count, c.maxInFlight), c.counts); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		name               string
		count, maxInFlight int
		counts             trivet.MemberCounts
		want               trivet.ProvisionState
		reason             string
	}{
		{"new", 3, 0, counts(0, 0, 0, 0), trivet.ProvisionPending, "no member has a machine yet"},
		{"queued", 3, 0, counts(3, 0, 0, 0), trivet.ProvisionPending, "no member has a machine yet"},
		{"one runs", 3, 0, counts(2, 1, 0, 0), trivet.ProvisionRunning, ""},
		{"others follow", 3, 1, counts(0, 0, 1, 0), trivet.ProvisionRunning, ""},
		{"all succeeded", 3, 1, counts(0, 0, 3, 0), trivet.ProvisionSucceeded, ""},
		{"one failed", 3, 1, counts(0, 0, 2, 1), trivet.ProvisionFailed, "1 of 3 members failed"},
		{"too many failed", 9, 1, counts(0, 0, 0, 3), trivet.ProvisionFailed, "3 members have failed and none"},
		{"none", 0, 1, counts(0, 0, 0, 0), trivet.ProvisionSucceeded, ""},
		{"more than asked for", 1, 1, counts(0, 0, 3, 0), trivet.ProvisionSucceeded, ""},
	} {
		got, reason := provision.Summary(many(c.count, c.maxInFlight), c.counts)
		if got != c.want || !strings.HasPrefix(reason, c.reason) {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, got, reason, c.want, c.reason)
		}
	}
}

// fleetOfOne applies what is planned for the members of one provision, and what becomes of them.
type fleetOfOne struct {
	t      *rapid.T
	spec   *trivet.ProvisionSpec
	counts trivet.MemberCounts
}

func (f *fleetOfOne) limit() int {
	if f.spec.MaxInFlight == 0 {
		return math.MaxInt
	}
	return f.spec.MaxInFlight
}

// move moves a member, where there is one, and checks that no more are in flight than may be.
func (f *fleetOfOne) move(from, to provision.MemberState) {
	was := f.counts
	have := map[provision.MemberState]int{provision.NoMember: 1, provision.MemberWaiting: was.Waiting,
		provision.MemberRunning: was.Running, provision.MemberSucceeded: was.Succeeded,
		provision.MemberFailed: was.Failed}
	if have[from] == 0 {
		return
	}
	is, ok := provision.Move(f.spec, was, from, to)
	if !ok {
		return
	}
	if is.InFlight() > max(was.InFlight(), f.limit()) || is.Running > max(was.Running, f.limit()) {
		f.t.Fatalf("%+v after %+v, and at most %d may be in flight", is, was, f.limit())
	}
	f.counts = is
}

// settle does what is planned until nothing is.
func (f *fleetOfOne) settle() {
	machines := f.counts.Running + f.counts.Succeeded
	for step := 0; ; step++ {
		plan := provision.PlanMembers(f.spec, f.counts)
		switch {
		case plan == provision.Plan{}:
			if f.counts.Running+f.counts.Succeeded != machines {
				f.t.Fatalf("members with machines were deleted: %+v", f.counts)
			}
			return
		case step == 3:
			f.t.Fatalf("the plan for %+v does not end: %+v", f.counts, plan)
		}
		for range plan.Create {
			before := f.counts
			f.move(provision.NoMember, provision.MemberWaiting)
			if f.counts == before {
				f.t.Fatalf("a member of %+v that is planned may not be created: %+v", f.counts, plan)
			}
		}
		for range plan.DeleteWaiting {
			f.move(provision.MemberWaiting, provision.NoMember)
		}
		for range plan.DeleteFailed {
			f.move(provision.MemberFailed, provision.NoMember)
		}
	}
}

// Whatever becomes of its members, and however its count changes, a provision has at most spec.maxInFlight of them in
// flight, never loses one that has a machine, and ends once its members do.
func TestMembersEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleetOfOne{t: t, spec: many(rapid.IntRange(0, 300).Draw(t, "count"),
			rapid.IntRange(0, 20).Draw(t, "maxInFlight"))}
		states := []provision.MemberState{provision.MemberWaiting, provision.MemberRunning, provision.MemberSucceeded,
			provision.MemberFailed, provision.NoMember}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				count := rapid.IntRange(0, 300).Draw(t, "new count")
				f.spec.Count = &count
			case 1:
				f.spec.MaxInFlight = rapid.IntRange(0, 20).Draw(t, "new maxInFlight")
			case 2, 3, 4:
				f.settle()
			default: // also what a command may do: a retry, or a deletion
				f.move(rapid.SampledFrom(states).Draw(t, "from"), rapid.SampledFrom(states[:4]).Draw(t, "to"))
			}
		}
		for step := 0; ; step++ {
			f.settle()
			if state, reason := provision.Summary(f.spec, f.counts); state.Ended() {
				if f.counts.InFlight() > 0 || (state == trivet.ProvisionFailed) != (f.counts.Failed > 0) {
					t.Fatalf("it has ended as %s (%s) with %+v", state, reason, f.counts)
				}
				return
			}
			if step > 1000 || f.counts.InFlight() == 0 {
				t.Fatalf("it does not end: %+v of %d", f.counts, *f.spec.Count)
			}
			f.move(provision.MemberWaiting, provision.MemberRunning)
			f.move(provision.MemberRunning, rapid.SampledFrom(states[2:4]).Draw(t, "end"))
		}
	})
}
