// Package guide_test follows the operator's guide: its commands are read from its text, and run in order by shells,
// with three real heads and the machines of its list, which are simulated. What it shows as output is what is printed.
package guide_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

const page = "../../docs/operators-guide.md"

// The process has a network of its own, with all addresses of the page.
func TestMain(m *testing.M) {
	testhead.OwnNetwork()
	m.Run()
}

// reader follows the page.
type reader struct {
	*testing.T
	dir     string // in which the commands run
	heads   []*testhead.Head
	rack    *rack
	shells  map[string]*shell // by person
	printed strings.Builder   // by all commands
}

// Every command of the guide works as it is written, and prints what is shown.
func TestOperatorsGuide(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	steps, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	r := newReader(t)
	for _, s := range steps {
		r.follow(s)
	}
	r.check()
}

// newReader starts the heads, and builds what the page requires: the machines, and the files that it does not show.
func newReader(t *testing.T) *reader {
	t.Helper()
	if out, err := exec.Command("ip", "addr", "add", "10.7.0.1/16", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip addr add: %v: %s (apt-get install iproute2)", err, out)
	}
	r := &reader{T: t, dir: t.TempDir(), shells: map[string]*shell{}}
	var dhcp []string
	for i := range 3 {
		h := testhead.NewHead(t, fmt.Sprint("head", i))
		h.Address = fmt.Sprintf("10.7.0.%d", 11+i)
		dhcp = append(dhcp, h.Address+":7067")
		var join []string
		if i > 0 {
			join = []string{"--join", r.heads[0].API(), "--token", r.heads[0].MustTrivet("head", "token")}
		}
		h.Up(join...)
		r.heads = append(r.heads, h)
	}
	r.shells[""] = r.person("TRIVET_CONFIG=" + r.heads[0].AdminFile())
	list, err := os.ReadFile("../../docs/examples/rack7.csv")
	if err != nil {
		t.Fatal(err)
	}
	r.write("rack7.csv", list)
	r.rack = newRack(t, filepath.Join(r.dir, "rack7.csv"), dhcp)
	r.rack.machines["r7-07"].failing.Store(true)
	r.write("platform/vmlinuz", []byte("kernel"))
	r.write("platform/initrd.img", []byte("initrd"))
	r.writeImage("debian-12.5.raw", 5)
	r.writeImage("debian-12.6.raw", 6)
	return r
}

// imageBytes is the size of an image. What is in its partition begins at partitionStart, and is contentBytes at least.
const imageBytes, partitionStart, contentBytes = 4 << 20, 1 << 20, 2 << 20

// writeImage writes an image: a disk with a partition table, and a partition with the data of a version.
func (r *reader) writeImage(name string, version uint64) {
	r.Helper()
	r.write(name, append(make([]byte, partitionStart), content(version, imageBytes-partitionStart)...))
	cmd := exec.Command("sfdisk", "-q", filepath.Join(r.dir, name))
	cmd.Stdin = strings.NewReader("label: gpt\nstart=2048\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("sfdisk: %v: %s (apt-get install fdisk)", err, out)
	}
}

// content returns the first n bytes of a version.
func content(version uint64, n int) []byte {
	b := make([]byte, n)
	random := rand.New(rand.NewPCG(version, 0))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	return b
}

func (r *reader) write(name string, content []byte) {
	r.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		r.Fatal(err)
	}
}

// person starts the shell of a person with a home of their own.
func (r *reader) person(env ...string) *shell {
	r.Helper()
	all := []string{"HOME=" + r.TempDir(), "PATH=" + filepath.Dir(testhead.Program(r.T)) + ":" + os.Getenv("PATH")}
	for _, unset := range []string{"XDG_CONFIG_HOME", "TRIVET_CONFIG", "TRIVET_TOKEN", "TRIVET_ENDPOINTS",
		"TRIVET_PROJECT"} {
		all = append(all, unset+"=")
	}
	return newShell(r.T, r.dir, append(all, env...)...)
}

func (r *reader) follow(s step) {
	r.Helper()
	switch {
	case s.file != "":
		r.write(s.file, []byte(s.content))
	case s.event != "":
		r.Logf("line %d: %s", s.line, s.event)
		r.happens(s.event)
	default:
		r.run(s)
	}
}

// run runs a command of the page.
func (r *reader) run(s step) {
	r.Helper()
	sh := r.shells[s.person]
	if sh == nil {
		sh = r.person()
		r.shells[s.person] = sh
	}
	command := complete(s.command, r.printed.String())
	output, status := sh.run(command)
	r.printed.WriteString(output)
	r.Logf("line %d: %s$ %s\n%s", s.line, s.person, command, output)
	if status != 0 && !s.any {
		r.Fatalf("line %d: exit status %d", s.line, status)
	}
	if !matches(s.want, output) {
		r.Errorf("line %d: this was printed:\n%s\nthe page shows:\n%s", s.line, output, strings.Join(s.want, "\n"))
	}
}

// happens makes what a comment of the page says happen.
func (r *reader) happens(event string) {
	r.Helper()
	switch event {
	case "the disk of r7-07 is replaced":
		r.rack.machines["r7-07"].failing.Store(false)
	case "head2 has no power":
		r.heads[2].Kill()
		r.awaitStatus("head2 does not respond", "stops writes: 2 of 3 voters respond")
	case "head2 has power again":
		r.heads[2].Up()
		r.awaitStatus("ok heads:", "ok spare:", "ok dhcp:", "ok tftp:", "ok boot-http:")
	default:
		r.Fatalf("the page has an event that this test does not know: %s", event)
	}
}

// awaitStatus waits until the heads know what has happened: what they know of each other is up to three seconds old.
func (r *reader) awaitStatus(texts ...string) {
	r.Helper()
	r.heads[0].Await("trivet status", func() error {
		var all string
		for _, name := range []string{"heads", "spare", "dhcp", "tftp", "boot-http"} {
			out, _ := r.heads[0].Trivet("status", "--invariant", name)
			all += strings.Join(strings.Fields(out.All), " ") + "\n"
		}
		for _, text := range texts {
			if !strings.Contains(all, text) {
				return fmt.Errorf("it has not %q:\n%s", text, all)
			}
		}
		return nil
	})
}

// check compares the disks of the machines with what the page says of them.
func (r *reader) check() {
	r.Helper()
	members := strings.Fields(r.heads[0].MustTrivet("get", "machines", "--field", "status.state=active", "-o", "name"))
	if len(members) != 19 {
		r.Errorf("%d machines are active: %q", len(members), members)
	}
	for _, name := range members {
		got, err := r.rack.disk(strings.TrimPrefix(name, "machine/"), partitionStart, contentBytes)
		if err != nil || !bytes.Equal(got, content(6, contentBytes)) {
			r.Errorf("%s does not have the new image: %v", name, err)
		}
	}
	if got, err := r.rack.disk("r7-05", 0, lab.DiskBytes); err != nil || len(bytes.Trim(got, "\x00")) > 0 {
		r.Errorf("the disk of r7-05 is not wiped: %v", err)
	}
}
