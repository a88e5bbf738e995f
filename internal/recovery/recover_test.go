package recovery_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/recovery"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// fill adds heads, machines and provisions in several states.
func (s *site) fill() {
	s.t.Helper()
	run := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "p1-1"},
		Spec: trivet.WorkflowSpec{Machine: "m2", Provision: "p1", Actions: []trivet.Action{{Name: "a", Use: "noop"}}}}
	(&workflow.Run{Spec: &run.Spec, Status: &run.Status}).Start(workflow.Machine{Power: true})
	machine := func(name string, st trivet.MachineStatus) *trivet.Machine {
		return &trivet.Machine{Meta: trivet.Meta{Name: name}, Status: st}
	}
	provision := func(name string, st trivet.ProvisionStatus) *trivet.Provision {
		return &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.ProvisionSpec{Template: "t", Machine: "m"}, Status: st}
	}
	s.update(func(tx *store.Tx) error {
		return errors.Join(
			s.tables.Heads.In(tx).Put(&trivet.Head{Meta: trivet.Meta{Name: "head0"},
				Status: trivet.HeadStatus{State: trivet.HeadMember, Peer: "https://127.0.0.1:1"}}),
			s.tables.Machines.In(tx).Put(machine("m1", trivet.MachineStatus{State: trivet.MachineAvailable, Epoch: 7,
				AgentKey: "k", BootID: "b", Intent: &trivet.PowerIntent{Want: "cycle"}, PowerHead: "head0"})),
			s.tables.Schedules.In(tx).Put(&trivet.BackupSchedule{Meta: trivet.Meta{Name: "nightly"},
				Spec:   trivet.BackupScheduleSpec{Every: trivet.Duration(time.Hour), Directory: "d"},
				Status: trivet.BackupScheduleStatus{Running: true}}),
			s.tables.Upgrades.In(tx).Put(&trivet.Upgrade{Meta: trivet.Meta{Name: trivet.UpgradeName},
				Spec:   trivet.UpgradeSpec{Run: 1, Version: "v2", Release: "99.0", Programs: []trivet.Program{{Arch: "amd64"}}},
				Status: trivet.UpgradeStatus{Run: 1, Phase: trivet.UpgradeReverting, Head: "head0"}}),
			s.tables.Machines.In(tx).Put(machine("m3", trivet.MachineStatus{State: trivet.MachineActive})),
			s.tables.Machines.In(tx).Put(machine("m4", trivet.MachineStatus{State: trivet.MachineReleasing})),
			s.tables.Machines.In(tx).Put(machine("m5", trivet.MachineStatus{State: trivet.MachineQuarantined,
				Former: trivet.MachineAvailable, Reason: "noise"})),
			s.tables.Machines.In(tx).Put(machine("m6", trivet.MachineStatus{State: trivet.MachineDiscovered})),
			s.tables.Provisions.In(tx).Put(provision("p1", trivet.ProvisionStatus{State: trivet.ProvisionRunning,
				Machine: "m2", Workflow: run.Name})),
			s.tables.Provisions.In(tx).Put(provision("p2", trivet.ProvisionStatus{State: trivet.ProvisionPending,
				WaitsFor: "image i"})),
			s.tables.Provisions.In(tx).Put(provision("p3", trivet.ProvisionStatus{State: trivet.ProvisionSucceeded})))
	})
	s.update(func(tx *store.Tx) error {
		m2 := machine("m2", trivet.MachineStatus{State: trivet.MachineClaimed, Workflow: run.Name, Provision: "p1",
			Intent: &trivet.PowerIntent{Want: "cycle"}})
		err := s.tables.Machines.In(tx).Create(m2)
		run.Spec.MachineUID = m2.UID
		return errors.Join(err, s.tables.Workflows.In(tx).Put(run))
	})
}

// opened runs the store of a recovered data directory.
func opened(t *testing.T, dir string) *state.Tables {
	t.Helper()
	keys, err := auth.Load(filepath.Join(dir, "keys"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := cluster.Start(t.Context(), cluster.Config{Dir: filepath.Join(dir, "store"), Name: "head100", Reserve: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	s := store.New(m.Client(), store.Options{Head: "head100", Cipher: keys.Values()})
	tables := state.New(s)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return tables
}

// After a recovery from a backup no machine is claimed, powered or wiped by itself, revisions and epochs are above all
// that may have been lost, and the former heads are removed.
func TestRecoverFromBackup(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	s.fill()
	s.update(func(tx *store.Tx) error {
		conf, err := s.tables.Sites.In(tx).Get(trivet.SiteName)
		if err != nil {
			return err
		}
		conf.Spec.Blobs = &trivet.SiteBlobs{S3: &trivet.Bucket{Location: "s3://images", Secret: "bucket"}}
		return s.tables.Sites.In(tx).Put(conf)
	})
	backups, dir := t.TempDir(), filepath.Join(t.TempDir(), "data")
	created := s.mustCreate(backups, true)
	var plan recovery.Plan
	r := recovery.Request{Dir: dir, Cluster: "c1", Version: "v1", Approve: func(p *recovery.Plan) error {
		plan = *p
		return nil
	}}
	done, err := recovery.FromBackup(t.Context(), at(backups), s.key, r)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Revision != created.Revision || plan.FrozenCount != 2 || plan.Unverified != 3 || plan.Intents != 2 ||
		plan.Head != "head101" || !slices.Equal(plan.Heads, []string{"head0"}) || done.BlobsMissing != 0 ||
		plan.Blobs != 1 || !plan.Bucket {
		t.Errorf("the plan: %+v", plan)
	}
	tables := opened(t, dir)
	if got := tables.Store.Revision(); got <= created.Revision+recovery.Jump {
		t.Errorf("the revision is %d", got)
	}
	nightly, err := tables.Schedules.Get("nightly")
	if err != nil || !nightly.Spec.Suspend || nightly.Status.Running {
		t.Errorf("the schedule of backups: %+v, %v", nightly, err)
	}
	u, err := tables.Upgrades.Get(trivet.UpgradeName)
	if err != nil || u.InProgress() || u.Status.Head != "" || u.Status.Cause != "the cluster was recovered" {
		t.Errorf("the upgrade: %+v, %v", u, err)
	}
	want := map[string]string{"m1": "unverified", "m2": "claimed", "m3": "active", "m4": "unverified",
		"m5": "quarantined unverified", "m6": "discovered"}
	for name, want := range want {
		m, err := tables.Machines.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(string(m.Status.State + " " + m.Status.Former)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
		if m.Status.Epoch < workflow.EpochJump || m.Status.Intent != nil || m.Status.PowerHead != "" {
			t.Errorf("%s: %+v", name, m.Status)
		}
	}
	w, err := tables.Workflows.Get("default/p1-1")
	if _, _, waits := workflow.CurrentWait(w); err != nil || !w.Status.Frozen || waits {
		t.Errorf("the run: %+v, %v", w.Status, err)
	}
	for name, want := range map[string]trivet.ProvisionState{"p1": "frozen", "p2": "frozen", "p3": "succeeded"} {
		if p, err := tables.Provisions.Get("default/" + name); err != nil || p.Status.State != want {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	h, err := tables.Heads.Get("head0")
	if err != nil || h.Status.State != trivet.HeadRemoved || !h.Status.Fenced {
		t.Errorf("head0: %+v, %v", h, err)
	}
	conf, err := tables.Sites.Get(trivet.SiteName)
	if err != nil || conf.Status.HeadNames != 102 || conf.Status.Recovered == nil ||
		conf.Status.Recovered.Incarnation != done.Incarnation || !conf.Spec.Blobs.Suspend {
		t.Errorf("the site: %+v, %v", conf, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "blobs", contentName(imageText))); err != nil ||
		string(text) != imageText {
		t.Errorf("the content of the image: %q, %v", text, err)
	}
}

func contentName(text string) string {
	return (&site{blobs: map[string][]byte{}}).blob(text).Digest[len("sha256:"):]
}

// What cannot be recovered is refused, with what to do instead, and leaves nothing.
func TestRecoverRefuses(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	s.fill()
	backups := t.TempDir()
	path := filepath.Join(backups, s.mustCreate(backups, false).Name)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file := func(text []byte) string {
		path := filepath.Join(t.TempDir(), "x.backup")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	changed := slices.Clone(text)
	changed[len(changed)/2] ^= 1
	other, _ := newKey(t, "c1", s.keys.CA.Trust())
	foreign, _ := newKey(t, "c2", s.keys.CA.Trust())
	newer := []byte(strings.Replace(string(text), "trivet-backup 1 ", "trivet-backup 2 ", 1))
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		path, dir, cluster, head string
		key                      *recovery.Key
		want, hint               string
	}{
		"wrong key":       {key: other, want: "it needs the recovery key", hint: "pass the file of that key"},
		"foreign key":     {key: foreign, want: "it is of cluster c1, and the key of", hint: "pass a backup"},
		"other cluster":   {cluster: "c9", want: "it is of cluster c1, not of c9", hint: "correct --cluster"},
		"truncated":       {path: file(text[:len(text)-9]), want: "it is truncated", hint: "use another backup"},
		"changed":         {path: file(changed), want: "it is damaged or was changed", hint: "use another backup"},
		"newer":           {path: file(newer), want: "made by a newer version", hint: "use that version"},
		"something else":  {path: file([]byte("hello")), want: "it is not a backup", hint: "name a file"},
		"missing":         {path: filepath.Join(backups, "no"), want: "not found", hint: "check the path"},
		"empty directory": {path: t.TempDir(), want: "no complete backup", hint: "trivet backup list"},
		"not empty":       {dir: full, want: "it is not empty: it has x", hint: "is empty or does not exist"},
		"used name":       {head: "head0", want: "is the name of another head"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.dir
			if dir == "" {
				dir = filepath.Join(t.TempDir(), "data")
			}
			if c.path == "" {
				c.path = path
			}
			if c.key == nil {
				c.key = s.key
			}
			_, err := recovery.FromBackup(t.Context(), at(c.path), c.key, recovery.Request{Dir: dir, Cluster: c.cluster,
				Name: c.head})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(hintOf(err), c.hint) {
				t.Errorf("%v (%s), want %q (%q)", err, hintOf(err), c.want, c.hint)
			}
			if _, err := os.Lstat(dir); c.dir == "" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left: %v", dir, err)
			}
		})
	}
}

// The plan alone changes nothing, a recovery that is in progress locks out another one, and one that was interrupted
// after all was ready only puts it in place.
func TestRecoverPlanAndResume(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	backups, dir := t.TempDir(), filepath.Join(t.TempDir(), "data")
	s.mustCreate(backups, false)
	enough := errors.New("enough")
	_, err := recovery.FromBackup(t.Context(), at(backups), s.key, recovery.Request{Dir: dir,
		Approve: func(p *recovery.Plan) error {
			if missing := []recovery.MissingBlob{{Digest: s.blob(imageText).Digest, UsedBy: "image/i1"}}; p.Blobs != 1 ||
				p.BlobsMissing != 1 || !slices.Equal(p.MissingBlobs, missing) {
				t.Errorf("the plan from a backup without contents: %+v", p)
			}
			_, err := recovery.FromBackup(t.Context(), at(backups), s.key, recovery.Request{Dir: dir})
			if !errors.Is(err, trivet.ErrConflict) || !strings.Contains(err.Error(), "in progress") {
				t.Errorf("a second recovery: %v", err)
			}
			return enough
		}})
	if !errors.Is(err, enough) {
		t.Errorf("the plan alone: %v", err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the plan alone leaves %s: %v", dir, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "recovering", "new", "keys"), 0o700); err != nil { // killed
		t.Fatal(err)
	}
	done, err := recovery.FromBackup(t.Context(), at(backups), s.key, recovery.Request{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	// As if it was killed while it put all in place.
	if err := recovery.Unplace(dir, done); err != nil {
		t.Fatal(err)
	}
	again, err := recovery.FromBackup(t.Context(), at(filepath.Join(backups, "no")), s.key, recovery.Request{Dir: dir})
	if err != nil || again.Incarnation != done.Incarnation {
		t.Fatalf("resumed: %+v, %v", again, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 { // blobs, head.json, keys, store
		t.Errorf("the directory has %v", left)
	}
	opened(t, dir)
}

// A recovery that is not confirmed, or is abandoned before any of it is in place, leaves the directory as it was. One
// that is half in place can only be completed.
func TestConfirmAndAbandon(t *testing.T) {
	s := newSite(t, trivet.CurrentRelease)
	backups, dir := t.TempDir(), filepath.Join(t.TempDir(), "data")
	s.mustCreate(backups, false)
	done, err := recovery.FromBackup(t.Context(), at(backups), s.key, recovery.Request{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := recovery.CheckSpace(dir); err != nil {
		t.Error(err)
	}
	late := errors.New("it took too long")
	_, err = recovery.FromData(t.Context(), dir, recovery.Request{Dir: dir, Confirm: func() error { return late }})
	if !errors.Is(err, late) {
		t.Errorf("not confirmed: %v", err)
	}
	if ready, err := recovery.GiveUp(dir); ready || err != nil {
		t.Errorf("it is ready: %t, %v", ready, err)
	}
	recovering := filepath.Join(dir, "recovering")
	if err := errors.Join(os.MkdirAll(filepath.Join(recovering, "new"), 0o700),
		os.WriteFile(filepath.Join(recovering, "new", "head.json"), nil, 0o600),
		os.WriteFile(filepath.Join(recovering, "ready"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if ready, err := recovery.GiveUp(dir); !ready || err != nil {
		t.Errorf("what is ready is given up: %t, %v", ready, err)
	}
	if err := recovery.Abandon(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(recovering); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it leaves %s: %v", recovering, err)
	}
	if err := recovery.Unplace(dir, done); err != nil {
		t.Fatal(err)
	}
	if err := recovery.Abandon(dir); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("what is half in place is abandoned: %v", err)
	}
	if _, err := recovery.FromData(t.Context(), dir, recovery.Request{Dir: dir}); err != nil {
		t.Errorf("it is not completed: %v", err)
	}
	opened(t, dir)
}
