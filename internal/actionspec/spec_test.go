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
	got := slices.Sorted(maps.Keys(makers))
	if diff := cmp.Diff(slices.Sorted(slices.Values(trivet.ActionUses)), got); diff != "" {
		t.Error(diff)
	}
}

func TestParse(t *testing.T) {
	root := Root{Disk: Disk{"/dev/vda"}, Partition: 2}
	for _, c := range []struct {
		use, with string
		want      Spec
	}{
		{"wipe", `{}`, &Wipe{Mode: "quick"}},
		{"wipe", `{"disk": "all", "mode": "discard"}`, &Wipe{Disk: "all", Mode: "discard"}},
		{"partition", `{"disk": "serial:X", "partitions": [{"name": "root", "size": "rest"}, {"size": "512MiB", "type": "efi"}]}`,
			&Partition{Disk: Disk{"serial:X"}, Partitions: []PartitionEntry{{Name: "root", Size: "rest"}, {Size: "512MiB", Type: "efi"}}}},
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
			&Command{Root: root, Args: []string{"ls", "-l"}, Env: map[string]string{"A": "b", "N": "1"}, In: "root", Blame: "configuration"}},
		{"seed", `{}`, &Seed{Path: "/var/lib/cloud/seed/nocloud"}},
		{"bootloader", `{"firmware": "uefi"}`, &Bootloader{Kind: "grub", Firmware: "uefi"}},
		{"container", `{"ref": "registry:5000/tool@sha256:00", "mount": "/target", "blame": "machine"}`,
			&Container{Ref: "registry:5000/tool@sha256:00", Mount: "/target", Blame: "machine"}},
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
		{"mkfs", `{}`, `use "mkfs" is no action`},
		{"reboot", `{"now": true}`, "with.now is not known here; there are no arguments"},
		{"noop", `{"slep": "1s"}`, "with.slep is not known here; there are sleep"},
		{"noop", `{"sleep": 3}`, "with.sleep must be a text in quotes"},
		{"noop", `{"sleep": "-3s"}`, "negative"},
		{"wipe", `{"mode": "fast"}`, `with.mode "fast" must be one of quick, discard, zero`},
		{"wipe", `{"disk": "sda"}`, "with.disk"},
		{"wipe", `{"disk": "/dev/../etc/passwd"}`, "with.disk"},
		{"wipe", `{"disk": ["/dev/sda"]}`, "with.disk must be a text"},
		{"partition", `{}`, "with.partitions has 0 entries"},
		{"partition", `{"partitions": "all"}`, "with.partitions must be a list"},
		{"partition", `{"partitions": [1]}`, "with.partitions[0] must be keys and values"},
		{"partition", `{"partitions": [{"size": "rest"}, {"size": "rest"}]}`, "2 of them want the rest"},
		{"partition", `{"partitions": [{"size": "10"}, {"sice": "1GiB"}]}`, "with.partitions[1].sice is not known here; there are name, size, type, uuid"},
		{"partition", `{"partitions": [{"size": "1 GB", "type": "ntfs", "uuid": "x"}]}`, "with.partitions[0].uuid"},
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
		{"file", `{"path": "/x", "content": "a", "base64": "YQ=="}`, "with.base64 stands beside content"},
		{"file", `{"path": "/x", "base64": "%"}`, "with.base64 is not base64"},
		{"file", `{"path": "/x", "mode": 644}`, "with.mode must be a text in quotes"},
		{"file", `{"path": "/x", "mode": "rw"}`, "with.mode"},
		{"file", `{"path": "/x", "owner": "a:"}`, "with.owner"},
		{"command", `{}`, "with.args or script is needed"},
		{"command", `{"args": ["a"], "script": "b"}`, "with.args or script is needed"},
		{"command", `{"args": [""]}`, "with.args[0] is missing"},
		{"command", `{"args": ["a"], "env": {"A=": "b"}}`, "with.env"},
		{"command", `{"args": ["a"], "blame": "nobody"}`, "with.blame"},
		{"bootloader", `{"kind": "lilo"}`, "with.kind"},
		{"container", `{}`, "with.image or ref is needed"},
		{"container", `{"ref": "a b"}`, "with.ref"},
		{"container", `{"ref": "a", "mount": "/"}`, "with.mount"},
		{"kexec", `{"initrd": "/boot/i"}`, "with.kernel is missing"},
		{"kexec", `{"cmdline": "a\nb"}`, "with.cmdline"},
	} {
		_, err := Parse(from(t, c.use, c.with))
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v\nwant: %s", c.use, c.with, err, c.want)
		}
	}
}

func TestATemplatesTextsAreCheckedWhereTheyStand(t *testing.T) {
	good := from(t, "file", `{"disk": "{{.Machine.Disk}}", "partition": "{{.Params.part}}", "path": "/etc/motd", "mode": "{{.Params.mode}}"}`)
	if err := Check(good); err != nil {
		t.Error(err)
	}
	bad := from(t, "file", `{"disc": "{{.Machine.Disk}}", "path": "/etc/motd"}`)
	if err := Check(bad); !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "with.disc is not known") {
		t.Error(err)
	}
}

// What a rendered text holds is content, whatever it looks like: many files are templates of other programs.
func TestRenderedTextsAreTakenAsTheyAre(t *testing.T) {
	s, err := Parse(from(t, "file", `{"path": "/etc/x", "content": "{{ ansible_managed }}"}`))
	if err != nil || s.(*File).Content != "{{ ansible_managed }}" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Parse(from(t, "file", `{"path": "{{.Machine.Name}}"}`)); !errors.Is(err, trivet.ErrInvalid) {
		t.Error(err)
	}
}

func TestImages(t *testing.T) {
	for with, a := range map[string]trivet.Action{
		"debian": from(t, "image", `{"image": "debian"}`),
		"files":  from(t, "archive", `{"image": "files"}`),
		"tool":   from(t, "container", `{"image": "tool"}`),
	} {
		if got := Images(a); !slices.Equal(got, []string{with}) {
			t.Errorf("%s: %v", a.Use, got)
		}
	}
	for _, a := range []trivet.Action{from(t, "container", `{"ref": "x"}`), from(t, "reboot", `{}`), from(t, "image", `{}`)} {
		if got := Images(a); got != nil {
			t.Errorf("%s: %v", a.Use, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("partition", `{"disk": "serial:X", "partitions": [{"name": "root", "size": "rest"}]}`)
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
