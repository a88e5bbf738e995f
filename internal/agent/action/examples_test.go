package action

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/workflow"
)

// The templates of docs/examples that partition one disk do so on a block device, up to the action fstab: sizes,
// numbers and labels agree with what it writes, and it finds the root file system.
func TestExamplePartitions(t *testing.T) {
	for _, c := range []struct {
		example string
		params  map[string]string
		root    int    // partition
		system  string // that is in it
	}{
		{"tree", map[string]string{"swap": "16MiB"}, 4, "ID=tree\n"},
		{"appliance", nil, 2, "ID=image\n"},
	} {
		t.Run(c.example, func(t *testing.T) {
			b := onLoop(t, 10<<30)
			b.add("debian-12-tree", "tar", "", files(t, [2]string{"etc/os-release", "ID=tree\n"}))
			b.add("appliance-root", "raw", "", fileSystem(t, "ID=image\n"))
			actions := exampleActions(t, c.example, c.params)
			last := slices.IndexFunc(actions, func(a trivet.Action) bool { return a.Name == "fstab" })
			for _, a := range actions[:last] {
				b.do(a.Use, a.With)
			}
			b.in(c.root, func(dir string) {
				if got, err := os.ReadFile(dir + "/etc/os-release"); err != nil || string(got) != c.system {
					t.Errorf("the system is %q, %v; want %q", got, err, c.system)
				}
			})
			list, err := volumesOf(b.disk)
			must(t, err)
			fstab := actions[last].With
			for line := range strings.Lines(fstab["content"].(string)) {
				f := strings.Fields(line)
				i := slices.IndexFunc(list, func(v volume) bool { return v.is(f[0]) })
				if i < 0 || list[i].fs.Type != f[2] {
					t.Errorf("no partition is %s; those of the disk are %+v", line, list)
				}
			}
			b.do("file", fstab)
		})
	}
}

// exampleActions returns the actions of a template of docs/examples, rendered.
func exampleActions(t *testing.T, example string, params map[string]string) []trivet.Action {
	t.Helper()
	text, err := os.ReadFile("../../../docs/examples/" + example + ".yaml")
	must(t, err)
	text, err = yaml.YAMLToJSON(text)
	must(t, err)
	template := &trivet.Template{}
	must(t, json.Unmarshal(text, template))
	actions, err := workflow.Render(template, workflow.Data{Machine: workflow.MachineData{Name: "m1", Rack: "r1"},
		Provision: workflow.ProvisionData{Hostname: "host1"}, Params: params})
	must(t, err)
	return actions
}

// fileSystem returns an image of a file system with /etc/os-release.
func fileSystem(t *testing.T, osRelease string) []byte {
	t.Helper()
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
	must(t, os.Mkdir(dir+"/etc", 0o755))
	must(t, os.WriteFile(dir+"/etc/os-release", []byte(osRelease), 0o644))
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-d", dir, image, "16M").CombinedOutput(); err != nil {
		t.Fatalf("mke2fs (apt-get install e2fsprogs): %v: %s", err, out)
	}
	content, err := os.ReadFile(image)
	must(t, err)
	return content
}
