package actionspec

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// from reads an action's arguments as JSON has them.
func from(t testing.TB, use, with string) trivet.Action {
	t.Helper()
	a := trivet.Action{Name: "a", Use: use}
	if err := json.Unmarshal([]byte(with), &a.With); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestEveryActionIsKnown(t *testing.T) {
	got := slices.Sorted(maps.Keys(constructors))
	if diff := cmp.Diff(slices.Sorted(slices.Values(trivet.ActionUses)), got); diff != "" {
		t.Error(diff)
	}
}

// What the action writes itself is refused in its settings, however it is written.
func TestHeadConfig(t *testing.T) {
	for config, bad := range map[string]string{"dhcp: [eno1]": "", "": "", "# token: x": "", "a:\n  token: x": "",
		"token: x": "token", "dhcp: []\n\"join\" : [x]": "join", "advertise: []": "advertise", "'rejoin': true": "rejoin",
		"recover: true": "recover"} {
		a := trivet.Action{Name: "a", Use: "head", With: map[string]any{"config": config}}
		switch _, err := Parse(a); {
		case bad == "" && err != nil, bad != "" && (err == nil || !strings.Contains(err.Error(), `has "`+bad+`"`)):
			t.Errorf("%q: %v", config, err)
		}
	}
}

func TestParse(t *testing.T) {
	root := Root{Disk: Disk{trivet.DiskHints{Path: "/dev/vda"}}, Partition: 2}
	rotational := true
	for _, c := range []struct {
		use, with string
		want      Spec
	}{
		{"wipe", `{}`, &Wipe{Mode: "quick"}},
		{"wipe", `{"disk": "all", "mode": "erase"}`, &Wipe{Disk: Disk{trivet.DiskHints{Path: "all"}}, Mode: "erase"}},
		{"verify", `{}`, &Verify{}},
		{"test-memory", `{}`, &TestMemory{Percent: 50, Passes: 1}},
		{"test-memory", `{"percent": "80", "time": "5m", "corrected": 2}`,
			&TestMemory{Percent: 80, Passes: 1, Time: trivet.Duration(5 * time.Minute), Corrected: 2}},
		{"test-disk", `{}`, &TestDisk{Mode: "read", Samples: 64}},
		{"test-disk", `{"disk": "all", "full": true, "minRate": "100MB", "maxLatency": "50ms"}`,
			&TestDisk{Disk: Disk{trivet.DiskHints{Path: "all"}}, Mode: "read", Full: true, Samples: 64, MinRate: 1e8,
				MaxLatency: trivet.Duration(50 * time.Millisecond)}},
		{"test-disk", `{"disk": "/dev/vda", "mode": "write", "destructive": "true"}`,
			&TestDisk{Disk: Disk{trivet.DiskHints{Path: "/dev/vda"}}, Mode: "write", Destructive: true, Samples: 64}},
		{"test-network", `{}`, &TestNetwork{Transfer: 64 << 20}},
		{"test-network", `{"transfer": "1GiB", "minRate": "100MB", "links": 2, "minSpeed": 10000}`,
			&TestNetwork{Transfer: 1 << 30, MinRate: 1e8, Links: 2, MinSpeed: 10000}},
		{"verify", `{"disk": "all"}`, &Verify{Disk: Disk{trivet.DiskHints{Path: "all"}}}},
		{"wipe", `{"disk": "all", "mode": "discard"}`, &Wipe{Disk: Disk{trivet.DiskHints{Path: "all"}},
			Mode: "discard"}},
		{"wipe", `{"disk": {"serial": "X", "minSize": "400GB", "rotational": "true"}}`,
			&Wipe{Disk: Disk{trivet.DiskHints{Serial: "X", MinSize: 400e9, Rotational: &rotational}}, Mode: "quick"}},
		{"partition", `{"disk": {"serial": "X"}, "partitions": [` +
			`{"name": "root", "size": "rest"}, {"size": "512MiB", "type": "efi"}]}`,
			&Partition{Disk: Disk{trivet.DiskHints{Serial: "X"}},
				Partitions: []PartitionEntry{{Name: "root", Size: "rest"}, {Size: "512MiB", Type: "efi"}}}},
		{"raid", `{"name": "root", "devices": [{"disk": {"serial": "X"}, "partition": 2}, "/dev/vdb"]}`,
			&Raid{Name: "root", Level: 1, Devices: []Target{{Disk: Disk{trivet.DiskHints{Serial: "X"}}, Partition: 2},
				{Disk: Disk{trivet.DiskHints{Path: "/dev/vdb"}}}}, Metadata: "1.2"}},
		{"lvm", `{"group": "vg0", "devices": ["/dev/md/root"], "volumes": [{"name": "data", "size": "rest"}]}`,
			&LVM{Group: "vg0", Devices: []Target{{Disk: Disk{trivet.DiskHints{Path: "/dev/md/root"}}}},
				Volumes: []Volume{{"data", "rest"}}}},
		{"format", `{"disk": "/dev/vda", "partition": 2, "fs": "ext4", "label": "root", "options": ["-m", 0]}`,
			&Format{Target: Target(root), FS: "ext4", Label: "root", Options: []string{"-m", "0"}}},
		{"format", `{"disk": "/dev/vda", "partition": "2", "fs": "swap"}`, &Format{Target: Target(root), FS: "swap"}},
		{"image", `{"image": "debian-12", "grow": "true"}`, &Image{Image: "debian-12", Grow: true}},
		{"archive", `{"image": "files"}`, &Archive{Image: "files", Path: "/"}},
		{"file", `{"path": "/etc/motd", "content": "hello"}`,
			&File{Path: "/etc/motd", Content: "hello", Mode: 0o644, Owner: Owner{"0", "0"}}},
		{"file", `{"path": "/k", "base64": "aGk=", "mode": "0600", "owner": "admin"}`,
			&File{Path: "/k", Base64: "aGk=", Mode: 0o600, Owner: Owner{"admin", "admin"}}},
		{"command", `{"disk": "/dev/vda", "partition": 2, "args": ["ls", "-l"], "env": {"A": "b", "N": 1}}`,
			&Command{Root: root, Args: []string{"ls", "-l"}, Env: map[string]string{"A": "b", "N": "1"}, In: "root",
				Blame: "configuration"}},
		{"seed", `{}`, &Seed{Path: "/var/lib/cloud/seed/nocloud"}},
		{"bootloader", `{"firmware": "uefi"}`, &Bootloader{Kind: "grub", Firmware: "uefi"}},
		{"container", `{"ref": "registry:5000/tool@sha256:` + zeros + `", "mount": "/target", "blame": "machine"}`,
			&Container{Ref: "registry:5000/tool@sha256:" + zeros, Mount: "/target", Net: "host", Blame: "machine"}},
		{"kexec", `{}`, &Kexec{}},
		{"reboot", `null`, &Reboot{}},
		{"poweroff", `{}`, &Poweroff{}},
		{"noop", `{"sleep": "3s"}`, &Noop{Sleep: trivet.Duration(3 * time.Second)}},
	} {
		got, err := Parse(from(t, c.use, c.with))
		if err != nil {
			t.Errorf("%s %s: %v", c.use, c.with, err)
			continue
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %s:\n%s", c.use, c.with, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ use, with, want string }{
		{"mkfs", `{}`, `use "mkfs" is not an action`},
		{"reboot", `{"now": true}`, "with.now is not known; the action has no arguments"},
		{"noop", `{"slep": "1s"}`, "with.slep is not known; did you mean sleep?"},
		{"noop", `{"sleep": 3}`, "with.sleep must be a text in quotes"},
		{"noop", `{"sleep": "-3s"}`, "negative"},
		{"wipe", `{"mode": "fast"}`, `with.mode "fast" must be one of quick, discard, zero`},
		{"wipe", `{"disk": "sda"}`, "with.disk"},
		{"wipe", `{"disk": "/dev/../etc/passwd"}`, "with.disk"},
		{"wipe", `{"disk": ["/dev/sda"]}`, "with.disk must be keys and values"},
		{"wipe", `{"disk": {"seriel": "X"}}`, "with.disk.seriel is not known; did you mean serial?"},
		{"wipe", `{"disk": {"minSize": "big"}}`, "with.disk.minSize is not valid"},
		{"wipe", `{"disk": {"minSize": "2TB", "maxSize": "1TB"}}`,
			"with.disk.minSize 2TB is greater than maxSize, 1TB"},
		{"wipe", `{"disk": {"hctl": "1"}}`, "with.disk.hctl"},
		{"test-memory", `{"percent": 95}`, "with.percent is 95; 1 to 90"},
		{"test-memory", `{"passes": 0}`, "with.passes is 0; 1 to 1000"},
		{"test-memory", `{"time": "10m"}`, "with.time is 10m0s; at most nine tenths of the action's timeout, 10m0s"},
		{"test-memory", `{"corrected": -1}`, "with.corrected is -1; 0 to 1000000"},
		{"test-disk", `{"mode": "write"}`, "with.mode write loses what is on the disk; to permit that, write also: " +
			"destructive: true"},
		{"test-disk", `{"destructive": true}`, "with.destructive is for mode write only"},
		{"test-disk", `{"mode": "scan"}`, `with.mode "scan" must be one of read, rewrite, write`},
		{"test-disk", `{"samples": 0}`, "with.samples is 0; 1 to 100000"},
		{"test-disk", `{"minRate": "100MB"}`, "with.minRate is of reading from the beginning to the end; write also: " +
			"full: true"},
		{"test-disk", `{"disk": "sda"}`, "with.disk"},
		{"test-network", `{"transfer": "1TB"}`, "with.transfer is 1TB; at most 64GiB"},
		{"test-network", `{"transfer": 64}`, "with.transfer must be a text in quotes"},
		{"test-network", `{"links": 100}`, "with.links is 100; 0 to 64"},
		{"test-network", `{"minSpeed": -1}`, "with.minSpeed is -1"},
		{"test-network", `{"errors": -1}`, "with.errors is -1"},
		{"image", `{"imaeg": "x"}`, "with.imaeg is not known; did you mean image?"},
		{"partition", `{}`, "with.partitions is required"},
		{"partition", `{"partitions": []}`, "with.partitions has 0 entries"},
		{"partition", `{"partitions": "all"}`, "with.partitions must be a list"},
		{"partition", `{"partitions": [1]}`, "with.partitions[0] must be keys and values"},
		{"partition", `{"partitions": [{"size": "rest"}, {"size": "rest"}]}`, "2 partitions have size rest"},
		{"partition", `{"partitions": [{"size": "10"}, {"sice": "1GiB"}]}`,
			"with.partitions[1].sice is not known; did you mean size?"},
		{"partition", `{"partitions": [{"size": "1 GB", "type": "ntfs", "uuid": "x"}]}`, "with.partitions[0].uuid"},
		{"raid", `{"devices": ["/dev/sda", "/dev/sdb"]}`, "with.name is required"},
		{"raid", `{"name": "a/b", "devices": ["/dev/sda", "/dev/sdb"]}`, `with.name "a/b" is not an array's name`},
		{"raid", `{"name": "-a", "devices": ["/dev/sda", "/dev/sdb"]}`, `with.name "-a" is not an array's name`},
		{"raid", `{"name": "a", "level": 5, "devices": ["/dev/sda", "/dev/sdb"]}`,
			"with.level is 5; only level 1, a mirror"},
		{"raid", `{"name": "a", "devices": ["/dev/sda"]}`, "with.devices has 1 entries; 2 to 16"},
		{"raid", `{"name": "a", "devices": ["/dev/sda", "/dev/sda"]}`,
			"with.devices[1] is the same device as devices[0]"},
		{"raid", `{"name": "a", "devices": [{"partition": 1}, {"partition": 1}]}`, "the same device"},
		{"raid", `{"name": "a", "devices": ["sda", "/dev/sdb"]}`, "with.devices[0].disk"},
		{"raid", `{"name": "a", "devices": [{"disk": "/dev/sda", "part": 1}, "/dev/sdb"]}`,
			"with.devices[0].part is not known; did you mean partition?"},
		{"raid", `{"name": "a", "devices": [{"partition": -1}, "/dev/sdb"]}`, "with.devices[0].partition is -1; 1 to 1024"},
		{"raid", `{"name": "a", "devices": ["/dev/sda", "/dev/sdb"], "metadata": "0.90"}`, `with.metadata "0.90" must be`},
		{"raid", `{"name": "a", "devices": ["/dev/sda", "/dev/sdb"], "spares": 1}`, "with.spares is not known"},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"]}`, "with.volumes is required"},
		{"lvm", `{"group": "md", "devices": ["/dev/sda"], "volumes": [{"name": "a", "size": "rest"}]}`,
			`with.group "md" is not a volume group's name`},
		{"lvm", `{"group": "vg 0", "devices": ["/dev/sda"], "volumes": [{"name": "a", "size": "rest"}]}`, "with.group"},
		{"lvm", `{"group": "vg0", "devices": [], "volumes": [{"name": "a", "size": "rest"}]}`,
			"with.devices has 0 entries; 1 to 16"},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": []}`, "with.volumes has 0 entries; 1 to 64"},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": [{"name": "a", "size": "rest"}, ` +
			`{"name": "b", "size": "rest"}]}`, "with.volumes 2 volumes have size rest; at most one may"},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": [{"name": "a", "size": "1GiB"}, ` +
			`{"name": "a", "size": "rest"}]}`, `with.volumes[1].name "a" is also the name of volumes[0]`},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": [{"name": "a_mlog", "size": "1GiB"}]}`,
			`with.volumes[0].name "a_mlog" is not a volume's name`},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": [{"name": "..", "size": "1GiB"}]}`,
			"with.volumes[0].name"},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": [{"name": "a", "size": "all"}]}`,
			"with.volumes[0].size"},
		{"lvm", `{"group": "vg0", "devices": ["/dev/sda"], "volumes": [{"name": "a", "size": "0GiB"}]}`,
			`with.volumes[0].size "0GiB" is not a size`},
		{"format", `{"fs": "zfs"}`, "with.fs"},
		{"format", `{"fs": "vfat", "label": "much-too-long"}`, "with.label has 13 bytes; at most 11"},
		{"format", `{"fs": "ext4", "label": "-F"}`, "with.label"},
		{"format", `{"fs": "ext4", "partition": 1.5}`, "with.partition must be a whole number"},
		{"image", `{}`, "with.image"},
		{"image", `{"image": "../x"}`, "with.image"},
		{"image", `{"image": "x", "partition": 1, "grow": true}`, "with.grow"},
		{"image", `{"image": "x", "grow": "maybe"}`, "with.grow must be true or false"},
		{"archive", `{"image": "x", "path": "etc"}`, "with.path"},
		{"file", `{"path": "/etc/../../x"}`, "with.path"},
		{"file", `{"path": "/"}`, "with.path"},
		{"file", `{"path": "/x", "content": "a", "base64": "YQ=="}`, "with.base64 is set together with content"},
		{"file", `{"path": "/x", "base64": "%"}`, "with.base64 is not base64"},
		{"file", `{"path": "/x", "mode": 644}`, "with.mode must be a text in quotes"},
		{"file", `{"path": "/x", "mode": "rw"}`, "with.mode"},
		{"file", `{"path": "/x", "owner": "a:"}`, "with.owner"},
		{"command", `{}`, "with.args or script is required"},
		{"command", `{"args": ["a"], "script": "b"}`, "with.args or script is required"},
		{"command", `{"args": [""]}`, "with.args[0] is required"},
		{"command", `{"args": ["a"], "env": {"A=": "b"}}`, "with.env"},
		{"command", `{"args": ["a"], "blame": "someone"}`, "with.blame"},
		{"bootloader", `{"kind": "lilo"}`, "with.kind"},
		{"container", `{}`, "with.image or ref is required"},
		{"container", `{"ref": "a b"}`, "with.ref"},
		{"container", `{"ref": "registry/tool:1.2"}`, "with a digest"},
		{"container", `{"ref": "registry/tool@sha256:00"}`, "with a digest"},
		{"container", `{"ref": "registry/a b@sha256:` + zeros + `"}`, "with a digest"},
		{"container", `{"ref": "a@sha256:` + zeros + `", "mount": "/"}`, "with.mount"},
		{"kexec", `{"initrd": "/boot/i"}`, "with.kernel is required"},
		{"kexec", `{"cmdline": "a\nb"}`, "with.cmdline"},
	} {
		_, err := Parse(from(t, c.use, c.with))
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v\nwant: %s", c.use, c.with, err, c.want)
		}
	}
}

// What is known of a template is checked at apply; what is rendered is left for the claim.
func TestTemplatesAreCheckedWhereValuesAreKnown(t *testing.T) {
	for _, c := range []struct{ use, with, want string }{
		{"file", `{"partition": "{{.Params.part}}", "path": "/etc/motd", "mode": "{{.Params.mode}}"}`, ""},
		{"image", `{"image": "{{.Params.image}}", "disk": {"serial": "{{.Params.serial}}"}}`, ""},
		{"container", `{"ref": "{{.Params.ref}}", "args": ["{{.Machine.Name}}"]}`, ""},
		{"command", `{"script": "{{.Params.script}}"}`, ""},
		{"partition", `{"partitions": [{"size": "{{.Params.size}}"}, {"size": "rest"}]}`, ""},
		{"format", `{"fs": "{{.Params.fs}}", "label": "long-for-vfat"}`, ""},
		{"file", `{"disc": "{{.Params.disk}}", "path": "/etc/motd"}`,
			"spec.actions[3].with.disc is not known; did you mean disk?"},
		{"image", `{"imaeg": "{{.Params.image}}"}`, "spec.actions[3].with.imaeg is not known; did you mean image?"},
		{"image", `{"imaeg": "{{.Params.image}}"}`, "spec.actions[3].with.image is required"},
		{"image", `{"image": "{{.Params.image}}", "partition": 5000}`,
			"spec.actions[3].with.partition is 5000; 1 to 1024"},
		{"file", `{"path": "etc", "content": "{{.Params.x}}"}`, "spec.actions[3].with.path"},
		{"partition", `{"partitions": [{"size": "{{.Params.size}}", "type": "ntfs"}]}`,
			"spec.actions[3].with.partitions[0].type"},
	} {
		err := Check("spec.actions[3]", from(t, c.use, c.with))
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s %s: %v\nwant: %s", c.use, c.with, err, c.want)
		}
	}
	rendered := from(t, "image", `{"image": "../x"}`)
	if err := CheckRendered("spec.actions[0]", rendered); err == nil ||
		!strings.Contains(err.Error(), "spec.actions[0].with.image") {
		t.Error(err)
	}
}

// A rendered text is content, even if it contains "{{": many files are templates of other programs.
func TestRenderedTextsAreNotTemplates(t *testing.T) {
	s, err := Parse(from(t, "file", `{"path": "/etc/x", "content": "{{ ansible_managed }}"}`))
	if err != nil || s.(*File).Content != "{{ ansible_managed }}" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Parse(from(t, "file", `{"path": "{{.Machine.Name}}"}`)); !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
}

func TestPartitionTypes(t *testing.T) {
	for name, guid := range partitionTypes {
		for _, text := range []string{name, guid, strings.ToUpper(guid)} {
			s, err := Parse(trivet.Action{Use: "partition", With: map[string]any{
				"partitions": []any{map[string]any{"size": "rest", "type": text}},
			}})
			if err != nil || !strings.EqualFold(s.(*Partition).Partitions[0].TypeGUID(), guid) {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	for _, bad := range []string{"ntfs", "c12a7328-f81f-11d2-ba4b-00a0c93ec9", "00000000-0000-0000-0000-000000000000"} {
		e := PartitionEntry{Size: "rest", Type: bad}
		var p problems
		if e.check(&p, "partitions[0]"); p.err() == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestImages(t *testing.T) {
	for with, a := range map[string]trivet.Action{
		"debian": from(t, "image", `{"image": "debian"}`),
		"files":  from(t, "archive", `{"image": "files"}`),
		"tool":   from(t, "container", `{"image": "tool"}`),
	} {
		if got, ok := UsedImage(a); !ok || got.Name != with {
			t.Errorf("%s: %v", a.Use, got)
		}
	}
	for _, a := range []trivet.Action{from(t, "container", `{"ref": "x@sha256:`+zeros+`"}`), from(t, "reboot", `{}`),
		from(t, "image", `{}`)} {
		if got, ok := UsedImage(a); ok {
			t.Errorf("%s: %v", a.Use, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("partition", `{"disk": {"serial": "X"}, "partitions": [{"name": "root", "size": "rest"}]}`)
	f.Add("file", `{"path": "/etc/motd", "mode": "0644", "owner": "a:b", "base64": "aGk="}`)
	f.Add("command", `{"args": ["a"], "env": {"A": "b"}, "in": "{{.Params.x}}"}`)
	f.Fuzz(func(t *testing.T, use, with string) {
		a := trivet.Action{Use: use}
		if json.Unmarshal([]byte(with), &a.With) != nil {
			return
		}
		s, err := Parse(a)
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Fatalf("an error that is not ErrInvalid: %v", err)
		}
		if file, ok := s.(*File); ok && err == nil {
			file.Bytes()
		}
	})
}

// zeros are the digits of a digest.
const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
