package e2e_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/lab/vm"
	"github.com/trivet-project/trivet/internal/testhead"
)

// Two of three heads are lost for good while the image is written to a machine. The third one continues alone by trivet
// recover, and the run is frozen: nothing is done to the machine, also while other heads join, until the operator
// decides as the commands say. Then it goes on without a reset, ends installed, and all is well.
func TestInstallWithQuorumLost(t *testing.T) {
	t.Parallel()
	r := newRecovery(t, "e2e-quorum")
	survivor := r.heads[2]
	r.begin()
	r.mustLose(r.heads[:2]...)
	r.mustHaveStatus(2, "no quorum", "next: start head0, head1; where they are lost for good: trivet recover "+
		"--from-survivor on a full head that is left", "see the invariant quorum")
	if err := survivor.process.Stop(testhead.Timeout); err != nil {
		t.Error(err)
	}
	r.recoverTo(survivor, "--from-survivor")
	r.box.mustPrint(`the run was granted to another agent|fenced: the run belongs to another agent`)
	since := r.look()
	r.mustBeFrozen()
	r.add()
	r.add()
	r.mustBeFrozen()
	if now := r.look(); now != since {
		t.Errorf("something was done to the machine: %+v, then %+v", since, now)
	}
	r.mustContinue()
	if now := r.look(); now.ons != 1 || now.ons != since.ons {
		t.Errorf("the machine was power-cycled: %+v, then %+v", since, now)
	}
	r.backUp()
	r.mustBeWell()
}

// All heads are lost, with their disks, while the image is written to a machine, and a backup of that moment is left.
// It is restored to a host with another name and address. The machine, whose agent knows former addresses only, is left
// alone until the operator decides. Then it is power-cycled, finds the new head, and ends installed. Now that head is
// lost as well, and the same backup is restored to another one: the machine, which was installed since, is left alone
// again, and its system runs on when the operator decides so.
func TestSoakInstallWithBackupLeft(t *testing.T) {
	soak(t)
	t.Parallel()
	r := newRecovery(t, "e2e-backup")
	r.begin()
	if err := r.box.Pause(t.Context()); err != nil { // a backup may take longer than the rest
		t.Fatal(err)
	}
	r.backUp("--blobs")
	if err := r.box.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mustLose(r.heads...)
	first := r.look()
	r.restore()
	r.mustBeFrozen()
	if now := r.look(); now.ons != first.ons || now.resets != first.resets {
		t.Errorf("the machine was started: %+v, then %+v", first, now)
	}
	r.mustContinue()
	installed := r.look()
	if installed.ons != first.ons+1 {
		t.Errorf("the machine was not power-cycled: %+v, then %+v", first, installed)
	}

	address := r.box.address()
	boot := r.box.run("alice", address, "echo kept > kept; sync; cat /proc/sys/kernel/random/boot_id")
	r.mustLose(r.heads...)
	r.restore()
	r.mustBeFrozen()
	r.mustKeep()
	if now := r.look(); now.ons != installed.ons || now.resets != installed.resets {
		t.Errorf("the machine was started: %+v, then %+v", installed, now)
	}
	if now := r.box.run("alice", address, "cat kept /proc/sys/kernel/random/boot_id"); now != "kept\n"+boot {
		t.Errorf("the installed system prints %q, want what it kept, and the same boot: %q", now, boot)
	}
}

// recovery is a cluster of three heads that are lost, and a machine with a BMC that is being installed meanwhile.
type recovery struct {
	*cluster
	box *box
}

// longLimits are deadlines by which a loaded computer does not make a head power-cycle the machine.
const longLimits = `{"spec": {"limits": {"dhcp": {"timeout": "25m"}, "boot-script": {"timeout": "25m"},
	"kernel": {"timeout": "25m"}, "hello": {"timeout": "25m"}, "first-boot": {"timeout": "25m"}}}}`

func newRecovery(t *testing.T, name string) *recovery {
	t.Helper()
	r := &recovery{cluster: newCluster(t, name, 3)}
	r.importPlatform()
	r.importDebian()
	r.trivet("patch", "template", "debian", longLimits)
	r.backUp()
	r.box = r.plug(r.net, vm.Config{Name: "rec1", Firmware: vm.BIOS}, "52:54:00:77:00:13", 0)
	r.box.addBMC(6233)
	return r
}

// begin requests the machine's installation, and returns when the record of its run says that the image is being
// written. All is well before.
func (r *recovery) begin() {
	r.Helper()
	r.mustBeWell()
	r.writeUserData()
	r.trivet(append(r.box.request(), "--no-wait")...)
	r.imageIsBeingWritten("rec1-1")
}

func (r *recovery) mustLose(heads ...*head) {
	r.Helper()
	if err := r.lose(slices.Clone(heads)...); err != nil {
		r.Fatal(err)
	}
}

// seen is what was done to the machine until a moment.
type seen struct {
	ons, resets int    // how often it was powered on, and reset since then
	actions     string // that its agent has begun or ended, by its journal, which has them before they change anything
}

func (r *recovery) look() (s seen) {
	r.Helper()
	var err error
	if s.ons, s.resets, err = r.box.Starts(r.Context()); err != nil {
		r.Fatal(err)
	}
	s.actions = strings.Join(r.box.ledger(), ", ")
	return s
}

// restore restores the backup to another host.
func (r *recovery) restore() {
	r.Helper()
	r.mustHaveStatus(3, "docs/recovery.md")
	h := r.plugInHead()
	r.recoverTo(h, "--from-backup", r.path("backups"), "--key", r.path("recovery.key"))
	r.heads = []*head{h}
	r.endpoints = testhead.APIURL(h.address)
}

var startCommand = regexp.MustCompile(`(?m)^start it: trivet server --data-dir (\S+)(.*)$`)

// recoverTo makes the data directory of a head by trivet recover, and starts the head by the command that is printed.
func (r *recovery) recoverTo(h *head, from ...string) {
	r.Helper()
	began := time.Now()
	args := append([]string{"recover", "--data-dir", r.path(h.name), "--advertise", h.address}, from...)
	plan, err := r.onHost(h, append(args, "--plan")...)
	if err != nil || !strings.Contains(plan, "Frozen:  1 provision, until trivet recover resolve\n           rec1\n") {
		r.Fatalf("the plan: %v\n%s", err, plan)
	}
	out, err := r.onHost(h, append(args, "--yes")...)
	start := startCommand.FindStringSubmatch(out)
	if err != nil || start == nil || start[1] != r.path(h.name) {
		r.Fatalf("trivet recover: %v\n%s", err, out)
	}
	h.mustStart(strings.Fields(start[2])...)
	r.Logf("trivet recover %s: served again after %.1f s", from[0], time.Since(began).Seconds())
}

// onHost runs a command on a head's host.
func (r *recovery) onHost(h *head, args ...string) (string, error) {
	out, err := testhead.Command(h.net.Name(), r.binary, args...).CombinedOutput()
	return string(out), err
}

// mustBeFrozen checks that nothing is done for the run, and that the commands of an operator lead to the decision.
func (r *recovery) mustBeFrozen() {
	r.Helper()
	r.mustHaveStatus(1, "provisions: 1 provision is frozen by a recovery: nothing is done for it",
		"next: trivet recover list ")
	r.mustPrint([]string{"recover", "list"}, "rec1-1   image\n", "\n  trivet recover resolve rec1 --continue\n",
		"--cancel leaves the machine as it is")
	r.mustPrint([]string{"why", "rec1"}, "running, and frozen: ", "until an operator decides: trivet recover list")
	r.mustPrint([]string{"get", "workflows"}, "running, frozen")
}

// mustPrint checks that the output of an operator command has these texts.
func (r *recovery) mustPrint(args []string, texts ...string) {
	r.Helper()
	out := r.trivet(args...)
	for _, text := range texts {
		if !strings.Contains(out, text) {
			r.Errorf("trivet %s has not printed %q:\n%s", strings.Join(args, " "), text, out)
		}
	}
}

// mustContinue continues the frozen run, which ends with the machine installed. What was recorded as done before is not
// done again.
func (r *recovery) mustContinue() {
	r.Helper()
	began := time.Now()
	r.trivet("recover", "resolve", "rec1", "--continue")
	r.box.mustComeUp(r.box.try("provision", "rec1", "--watch"))
	r.Logf("installed %.0f s after trivet recover resolve --continue", time.Since(began).Seconds())
	var w trivet.Workflow
	out, err := r.output("get", "workflows", "rec1-1", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &w)
	}
	if err != nil {
		r.Fatal(err)
	}
	wiped := slices.DeleteFunc(r.box.ledger(), func(l string) bool { return !strings.HasPrefix(l, "wipe done") })
	if w.Status.State != trivet.WorkflowSucceeded || len(wiped) > 1 {
		r.Errorf("the run ended as %+v; the agent's journal: %v", w.Status, r.box.ledger())
	}
}

// mustKeep ends the frozen run, and keeps the machine with what it runs.
func (r *recovery) mustKeep() {
	r.Helper()
	r.trivet("recover", "resolve", "rec1", "--cancel")
	const keep = "trivet quarantine rec1 --reason 'installed before the recovery'"
	r.mustHaveStatus(1, "machines: 1 machine is unverified after a recovery", "next: trivet recover list ")
	r.mustPrint([]string{"recover", "list"}, "unverified: 1 machine: rec1\n", "trivet accept rec1\n", keep)
	r.trivet("quarantine", "rec1", "--reason", "installed before the recovery")
	r.mustPrint([]string{"recover", "list"},
		"unverified, and kept in quarantine: 1 machine: rec1\nnothing is left to decide\n")
}
