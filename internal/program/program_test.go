package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// host is a head's data directory, and an installed program.
type host struct {
	*testing.T
	data, installed string
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t, filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "trivet")}
	h.install("v1")
	return h
}

// install puts a program in the place of the installed one.
func (h *host) install(version string) {
	h.Helper()
	if err := os.WriteFile(h.installed, []byte(script(version)), 0o700); err != nil {
		h.Fatal(err)
	}
}

// script is a program that prints its version.
func script(version string) string {
	return fmt.Sprintf("#!/bin/sh\necho '{\"client\":%q,\"release\":\"1.0\"}'\n", version)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return digestPrefix + hex.EncodeToString(sum[:])
}

// stage stages a version, and returns its digest.
func (h *host) stage(version string) string {
	h.Helper()
	text := script(version)
	if err := Open(h.data, h.installed).Stage(h.Context(), digestOf(text), Version{version, "1.0"},
		strings.NewReader(text)); err != nil {
		h.Fatal(err)
	}
	return digestOf(text)
}

// start starts the installed program, as a service manager does, and returns the process that runs in the end.
func (h *host) start() (d *Dir, version string) {
	h.Helper()
	d = Open(h.data, h.installed)
	file, err := d.Start()
	if err != nil {
		h.Fatal(err)
	}
	return h.run(file)
}

// run is the process of a file; an empty one: the installed program.
func (h *host) run(file string) (d *Dir, version string) {
	h.Helper()
	if file == "" {
		file = h.installed
	}
	d = Open(h.data, file)
	if next, err := d.Start(); file != h.installed && (next != "" || err != nil) {
		h.Errorf("%s starts %q, %v", file, next, err)
	}
	v, err := VersionOf(h.Context(), file)
	if err != nil {
		h.Fatal(err)
	}
	return d, v.Version
}

// next is the process that replaces one.
func (h *host) next(d *Dir) (*Dir, string) {
	h.Helper()
	file, err := d.Next()
	if err != nil {
		h.Fatal(err)
	}
	return h.run(file)
}

// upgraded is the process of a version that was selected and confirmed.
func (h *host) upgraded(d *Dir, upgrade int64, version string) *Dir {
	h.Helper()
	h.must(d.Select(upgrade, h.stage(version)))
	d, _ = h.next(d)
	h.must(d.Confirm())
	return d
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) want(got, want string) {
	h.Helper()
	if got != want {
		h.Errorf("%s runs; want %s", got, want)
	}
}

// A program that was selected and confirmed runs after each start, and the next one goes back to it.
func TestSelect(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, v := h.start()
	h.want(v, "v1")
	h.must(d.Confirm())
	v2 := h.stage("v2")
	h.must(d.Select(1, v2))
	h.must(d.Select(1, v2)) // the head was killed in between
	d, v = h.next(d)
	h.want(v, "v2")
	if !d.Unconfirmed() {
		t.Error("it is confirmed")
	}
	if running, err := d.Running(); running != v2 || err != nil {
		t.Errorf("%s runs, %v", running, err)
	}
	h.must(d.Confirm())
	for range 2 * maxStarts {
		d, v = h.start()
		h.want(v, "v2")
	}
	if d.Unconfirmed() {
		t.Error("it is not confirmed")
	}
	v3 := h.stage("v3")
	h.must(d.Select(2, v3))
	d, v = h.next(d)
	h.want(v, "v3")
	h.must(d.Confirm())
	h.must(d.GiveUp("by command"))
	d, v = h.next(d)
	h.want(v, "v2")
	if problem, err := d.GivenUp(2, v3); problem != "by command" || err != nil {
		t.Errorf("%q, %v", problem, err)
	}
	if err := d.GiveUp("again"); err != nil {
		t.Errorf("v2 has no former one: %v", err)
	}
	_, v = h.next(d)
	h.want(v, "v1")
}

// A program that ends before it is confirmed is given up after some starts, and so is one that says so itself.
func TestFallback(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	v2 := h.stage("v2")
	h.must(d.Select(1, v2))
	_, v := h.next(d)
	h.want(v, "v2")
	for range maxStarts - 1 {
		_, v = h.start()
		h.want(v, "v2")
	}
	d, v = h.start()
	h.want(v, "v1")
	if problem, err := d.GivenUp(1, v2); !strings.Contains(problem, "it ended 3 times") || err != nil {
		t.Errorf("%q, %v", problem, err)
	}
	if problem, _ := d.GivenUp(1, digestOf("another")); problem != "" {
		t.Errorf("another program failed: %s", problem)
	}
	if problem, _ := d.GivenUp(2, v2); problem != "" {
		t.Errorf("another upgrade failed: %s", problem)
	}
	h.must(d.Select(2, v2))
	d, v = h.next(d)
	h.want(v, "v2")
	h.must(d.GiveUp("it cannot start"))
	d, v = h.next(d)
	h.want(v, "v1")
	if err := d.GiveUp("the installed one"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("the installed program was given up: %v", err)
	}
}

// A program that is not confirmed yet cannot be replaced: it is what the next one would go back to.
func TestSelectBeforeConfirmed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	h.must(d.Select(1, h.stage("v2")))
	d, _ = h.next(d)
	if err := d.Select(2, h.stage("v3")); !errors.Is(err, trivet.ErrConflict) {
		t.Errorf("%v", err)
	}
}

// What was installed last runs.
func TestInstalledLast(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	h.upgraded(d, 1, "v2")
	h.install("v10")
	_, v := h.start()
	h.want(v, "v10")
	d, v = h.start()
	h.want(v, "v10")
	if file, err := d.Next(); file != "" || err != nil { // as after a rotation of the CA
		t.Errorf("v10 is replaced by %q, %v", file, err)
	}
	later := time.Now().Add(time.Hour)
	h.must(d.Select(2, h.stage("v11")))
	h.must(os.Chtimes(h.installed, later, later)) // the same size
	_, v = h.start()
	h.want(v, "v10")
}

// A program that was selected, and that a package replaced before it was confirmed, does not keep another one from
// being selected, nor the same one in another upgrade.
func TestSelectOverUnconfirmed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	h.must(d.Select(1, h.stage("v2")))
	h.install("v10")
	d, v := h.start()
	h.want(v, "v10")
	h.must(d.Select(2, h.stage("v3")))
	_, v = h.next(d)
	h.want(v, "v3")
	h.install("v11")
	d, v = h.start()
	h.want(v, "v11")
	h.must(d.Select(3, digestOf(script("v3")))) // the same program again
	_, v = h.next(d)
	h.want(v, "v3")
	_, v = h.start()
	h.want(v, "v3")
}

// The same package, installed again, is installed last, too: it is another file with the same time.
func TestInstalledAgain(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	h.must(d.Select(1, h.stage("v2")))
	info, err := os.Stat(h.installed)
	h.must(err)
	h.must(os.Rename(h.installed, h.installed+".old"))
	h.install("v1")
	h.must(os.Chtimes(h.installed, info.ModTime(), info.ModTime()))
	_, v := h.start()
	h.want(v, "v1")
}

// A package that is unpacked while the head runs a program of an upgrade is older than the next upgrade.
func TestPackageBetween(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	d = h.upgraded(d, 1, "v2")
	h.install("v10")
	h.upgraded(d, 2, "v3")
	_, v := h.start()
	h.want(v, "v3")
}

// A process of another program that is started by hand does not change what the head runs.
func TestStartByHand(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	h.upgraded(d, 1, "v2")
	other := filepath.Join(t.TempDir(), "other")
	h.must(os.WriteFile(other, []byte(script("other")), 0o700))
	if file, err := Open(h.data, other).Start(); file != "" || err != nil {
		t.Errorf("%q, %v", file, err)
	}
	_, v := h.start()
	h.want(v, "v2")
}

// A head can go back from the program of this upgrade only, while that of before is there.
func TestCanGoBack(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	if d.CanGoBack(0) || d.CanGoBack(1) {
		t.Error("the installed program can go back")
	}
	h.must(d.Select(1, h.stage("v2")))
	d, _ = h.next(d)
	if !d.CanGoBack(1) || d.CanGoBack(2) {
		t.Error("v2 cannot go back, or in another upgrade")
	}
	h.must(os.Remove(h.installed))
	if d.CanGoBack(1) {
		t.Error("it can go back to a file that is gone")
	}
	if err := d.GiveUp("x"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// What may be due to the host is repeated; what is due to the program is not.
func TestReport(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	text, problem := script("v2"), error(trivet.ErrNotFound)
	own := &Own{Dir: d, Open: func(context.Context, trivet.BlobRef) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(text)), problem
	}}
	u := &trivet.Upgrade{Spec: trivet.UpgradeSpec{Run: 1, Version: "v2", Release: "1.0", Programs: []trivet.Program{
		{Arch: runtime.GOARCH, Blob: trivet.BlobRef{Digest: digestOf(text)}}}}, Status: trivet.UpgradeStatus{Run: 1,
		Phase: trivet.UpgradeStaging}}
	want := func(what string, staged, failed bool, text string) {
		t.Helper()
		p := own.Report(t.Context(), u)
		if p.Staged != staged || p.Failed != failed || !strings.Contains(p.Problem, text) || p.Problem != "" && text == "" {
			t.Errorf("%s: %+v", what, p)
		}
	}
	want("it is not here yet", false, false, "")
	problem = trivet.ErrUnavailable
	want("it cannot be read", false, false, "unavailable")
	problem = nil
	u.Spec.Version = "v3"
	want("another version", false, true, "is version v2")
	u.Spec.Version = "v2"
	want("it has failed in this upgrade", false, true, "is version v2")
	u.Spec.Run, u.Status.Run = 2, 2
	want("the next upgrade", true, false, "")
	file := filepath.Join(d.path, stateFile)
	h.must(os.Mkdir(file, 0o700)) // it cannot be read
	want("the state cannot be read", false, false, "is a directory")
	h.must(os.Remove(file))
	want("it can again", true, false, "")
	if follow := own.Follow(u, "h", &trivet.HeadProgram{Run: 2, Arch: runtime.GOARCH, Staged: true}); follow != nil {
		t.Error("it follows while it stages")
	}
	own.Manual = true
	if p := own.Report(t.Context(), u); !p.Manual || p.Staged {
		t.Errorf("%+v", p)
	}
}

// Where the file of the selected program is lost, the former one runs.
func TestLostFile(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	v2 := h.stage("v2")
	h.must(d.Select(1, v2))
	d, _ = h.next(d)
	h.must(d.Confirm())
	h.must(os.RemoveAll(d.dir(v2)))
	_, v := h.start()
	h.want(v, "v1")
}

// A state that cannot be read lets the installed program run.
func TestDamagedState(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{", `{"run":"../../x"}`, `{"run":"sha256:zz"}`, `{"run":7}`} {
		h := newHost(t)
		d, _ := h.start()
		h.must(d.Select(1, h.stage("v2")))
		h.must(os.WriteFile(filepath.Join(d.path, stateFile), []byte(text), 0o600))
		if file, err := d.Start(); file != "" || !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%q: %q, %v", text, file, err)
		}
	}
}

// Only a program of this content, that prints this version, is stored.
func TestStage(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	good := script("v2")
	silent, failing := "#!/bin/sh\n", "#!/bin/sh\necho no >&2; exit 3\n"
	for name, c := range map[string]struct {
		content, digest string
		version         Version
		want            error
		text            string
	}{
		"another content": {good + " ", digestOf(good), Version{"v2", "1.0"}, trivet.ErrUnavailable, "damaged"},
		"cut off":         {good[:10], digestOf(good), Version{"v2", "1.0"}, trivet.ErrUnavailable, "damaged"},
		"another version": {good, digestOf(good), Version{"v3", "1.0"}, trivet.ErrInvalid, "is version v2"},
		"another release": {good, digestOf(good), Version{"v2", "1.1"}, trivet.ErrInvalid, "release 1.0"},
		"no program":      {"text", digestOf("text"), Version{"v2", "1.0"}, trivet.ErrInvalid, "exec format"},
		"another program": {silent, digestOf(silent), Version{"v2", "1.0"}, trivet.ErrInvalid, "no program of Trivet"},
		"a failing one":   {failing, digestOf(failing), Version{"v2", "1.0"}, trivet.ErrInvalid, "exit status 3: no"},
		"no digest":       {good, "sha256:../../etc/passwd", Version{"v2", "1.0"}, trivet.ErrInvalid, "digest"},
	} {
		d := Open(h.data, h.installed)
		err := d.Stage(t.Context(), c.digest, c.version, strings.NewReader(c.content))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
		left, err := os.ReadDir(d.path)
		if err == nil && len(left) > 0 || d.Has(c.digest) {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

// Only what is selected, what was before and what is new is kept.
func TestStageRemovesOthers(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	d, _ := h.start()
	h.stage("never")
	v2 := h.stage("v2")
	h.must(d.Select(1, v2))
	d, _ = h.next(d)
	h.must(d.Confirm())
	v3 := h.stage("v3")
	h.must(d.Select(2, v3))
	v4 := h.stage("v4")
	entries, err := os.ReadDir(d.path)
	h.must(err)
	var names []string
	for _, e := range entries {
		names = append(names, digestPrefix+e.Name())
	}
	if len(names) != 4 || !d.Has(v2) || !d.Has(v3) || !d.Has(v4) {
		t.Errorf("%v; want %s, %s, %s and the state", names, v2, v3, v4)
	}
}
