package action

import (
	"bytes"
	"os"
	"testing"

	"github.com/trivet-project/trivet"
)

// The configuration has the settings of the template and the right to join, for its owner only, and the program is the
// one that runs the action, in place of whatever was there.
func TestHead(t *testing.T) {
	b := onFile(t, 1<<20)
	path, err := b.env.Host.Disk(trivet.DiskHints{})
	must(t, err)
	root := path + ".root"
	must(t, os.MkdirAll(root+"/usr/bin", 0o755))
	must(t, os.Symlink("/etc/passwd", root+"/usr/bin/trivet"))
	b.fail("head", b.on(nil), trivet.FaultConfiguration, true, "do not let this machine join")
	if _, err := os.Lstat(root + "/etc/trivet/config.yaml"); err == nil {
		t.Error("a head without the right to join is configured")
	}
	b.run.Join = &trivet.RunJoin{Token: "sha256:00.tb1~join~m1", Address: "10.0.0.7",
		Heads: []string{"https://10.0.0.5:7480", "https://10.0.0.6:7480"}}
	for range 2 {
		b.do("head", map[string]any{"config": "dhcp: [eno1]"})
	}
	config, err := os.ReadFile(root + "/etc/trivet/config.yaml")
	must(t, err)
	if want := `dhcp: [eno1]
advertise: ["10.0.0.7"]
join: ["https://10.0.0.5:7480","https://10.0.0.6:7480"]
token: "sha256:00.tb1~join~m1"
`; string(config) != want {
		t.Errorf("the configuration is\n%s\nwant\n%s", config, want)
	}
	fi, err := os.Stat(root + "/etc/trivet/config.yaml")
	must(t, err)
	own, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	program, err := os.ReadFile(root + "/usr/bin/trivet")
	must(t, err)
	link, err := os.Lstat(root + "/usr/bin/trivet")
	must(t, err)
	if fi.Mode() != 0o600 || link.Mode() != 0o755 || !bytes.Equal(program, own) {
		t.Errorf("modes %v, %v; a program of %d bytes, want %d", fi.Mode(), link.Mode(), len(program), len(own))
	}
	b.do("head", map[string]any{"program": "", "path": "/etc/other.yaml", "mode": "0640"})
	if fi, err := os.Stat(root + "/etc/other.yaml"); err != nil || fi.Mode() != 0o640 {
		t.Errorf("%v, %v", fi, err)
	}
}
