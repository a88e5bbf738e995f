package action

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// files creates a tar: a name that ends with "/" is a directory, content that begins with "->" a link.
func files(t testing.TB, list ...[2]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range list {
		h := &tar.Header{Name: f[0], Mode: 0o755, Size: int64(len(f[1])), Typeflag: tar.TypeReg}
		link, isLink := strings.CutPrefix(f[1], "->")
		switch {
		case strings.HasSuffix(f[0], "/"):
			h.Typeflag, h.Size = tar.TypeDir, 0
		case isLink:
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		}
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte(f[1]))
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

// system is an installed system: one static program, its own /boot and swap.
func system(t testing.TB) []byte {
	t.Helper()
	prog, err := tool()
	must(t, err)
	return files(t,
		[2]string{"etc/os-release", "ID=test\n"},
		[2]string{"etc/passwd", "root:x:0:0::/root:/bin/sh\nadmin:x:1000:1000::/home:/bin/sh\n"},
		[2]string{"etc/group", "root:x:0:\nadmin:x:1000:\n"},
		[2]string{"etc/fstab", "# root\nLABEL=root / ext4 defaults 0 1\nPARTLABEL=boot /boot ext4 ro 0 2\nUUID=none " +
			"/data ext4 nofail 0 2\nLABEL=sw none swap sw 0 0\n"},
		[2]string{"etc/resolv.conf", "->../run/resolve/stub.conf"},
		[2]string{"bin/sh", string(prog)},
		[2]string{"bin/tool", string(prog)},
		[2]string{"tmp/", ""},
		[2]string{"vmlinuz", "->boot/vmlinuz-1"},
		[2]string{"away", "->/etc"},
	)
}

// installed is a machine with that system.
func installed(t *testing.T) *bench {
	t.Helper()
	b := onLoop(t, 160<<20)
	b.do("partition", map[string]any{"partitions": []any{
		map[string]any{"name": "boot", "size": "16MiB"}, map[string]any{"name": "root", "size": "rest"},
	}})
	b.do("format", map[string]any{"partition": 1, "fs": "ext4", "label": "boot"})
	b.do("format", map[string]any{"partition": 2, "fs": "ext4", "label": "root"})
	b.add("system", "tar", "zstd", pack(t, system(t)))
	b.do("archive", map[string]any{"partition": 2, "image": "system"})
	return b
}

func TestTheInstalledSystemIsFoundAndMountedWhole(t *testing.T) {
	b := installed(t)
	b.do("file", map[string]any{"path": "/boot/vmlinuz-1", "content": "kernel"}) // the root is found, and its /boot
	b.in(1, func(dir string) {
		if got, err := os.ReadFile(dir + "/vmlinuz-1"); err != nil || string(got) != "kernel" {
			t.Errorf("on the partition for /boot: %q, %v", got, err)
		}
	})
	var cmdline string
	b.env.LoadKernel = func(kernel, initrd *os.File, words string) error {
		content := make([]byte, 6)
		_, err := kernel.Read(content)
		if string(content) != "kernel" || initrd != nil {
			t.Errorf("kernel %q, initrd %v", content, initrd)
		}
		cmdline = words
		return err
	}
	b.do("kexec", nil)
	if !strings.HasPrefix(cmdline, "root=UUID=") || !strings.Contains(cmdline, " ro") {
		t.Errorf("command line %q", cmdline)
	}
	b.fail("kexec", b.on(map[string]any{"kernel": "/boot/none"}), trivet.FaultConfiguration, true,
		"kernel of the installed system")
	b.fail("bootloader", b.on(map[string]any{"firmware": "uefi"}), trivet.FaultConfiguration, true,
		"no EFI system partition")
	b.do("bootloader", map[string]any{"kind": "none"})
}

func TestARootThatCannotBeFound(t *testing.T) {
	b := onLoop(t, 64<<20)
	b.fail("file", b.on(map[string]any{"path": "/x"}), trivet.FaultConfiguration, true, "set partition")
	b.do("partition", map[string]any{"partitions": []any{map[string]any{"size": "20MiB"},
		map[string]any{"size": "rest"}}})
	b.do("format", map[string]any{"partition": 1, "fs": "ext4"})
	b.do("format", map[string]any{"partition": 2, "fs": "ext4"})
	b.fail("file", b.on(map[string]any{"path": "/x"}), trivet.FaultConfiguration, true, "2 file systems that could be")
	b.fail("file", b.on(map[string]any{"path": "/x", "partition": 3}), trivet.FaultConfiguration, true,
		"no such partition")
	b.do("format", map[string]any{"partition": 2, "fs": "swap"})
	b.do("file", map[string]any{"path": "/x"}) // now there is one
	b.fail("file", b.on(map[string]any{"path": "/x", "partition": 2}), trivet.FaultMachine, false, "mount")
}

func TestFile(t *testing.T) {
	each := map[string]*bench{"loop": installed(t), "file": onFile(t, 1<<20)}
	path, err := each["file"].env.Host.Disk(trivet.DiskHints{})
	must(t, err)
	must(t, os.MkdirAll(path+".root/etc", 0o755))
	must(t, os.WriteFile(path+".root/etc/passwd", []byte("admin:x:1000:1000::/:/bin/sh\n"), 0o644))
	must(t, os.WriteFile(path+".root/etc/group", []byte("admin:x:1000:\n"), 0o644))
	must(t, os.Symlink("/etc", path+".root/away"))
	for name, b := range each {
		for range 2 {
			b.do("file", map[string]any{"path": "/away/motd", "content": "hello\n", "mode": "4750", "owner": "admin"})
		}
		b.in(0, func(dir string) {
			fi, err := os.Stat(dir + "/etc/motd")
			must(t, err)
			if fi.Mode() != 0o750|os.ModeSetuid {
				t.Errorf("%s: mode %v", name, fi.Mode())
			}
		})
		b.fail("file", b.on(map[string]any{"path": "/x", "owner": "absent:absent"}), trivet.FaultConfiguration, true,
			`no user "absent"`)
		b.fail("file", b.on(map[string]any{"path": "/etc"}), trivet.FaultConfiguration, true, "/etc")
		b.fail("file", b.on(map[string]any{"path": "/etc/motd/x"}), trivet.FaultConfiguration, true, "not a directory")
	}
}

func TestCommand(t *testing.T) {
	b := installed(t)
	b.do("command", map[string]any{"args": []any{"tool", "a b", "c"}, "env": map[string]any{"COLOUR": "green"}})
	out := b.log.String()
	for _, want := range []string{"args a b c\n", "pid 1 uid 0", "env COLOUR=green\n", "env TRIVET_MACHINE=m1\n",
		" loop-control "} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	b.do("command", map[string]any{"args": []any{"tool", "write", "/etc/written", "by the system"}})
	b.in(0, func(dir string) {
		if got, err := os.ReadFile(dir + "/etc/written"); err != nil || string(got) != "by the system" {
			t.Errorf("%q, %v", got, err)
		}
	})
	b.do("command", map[string]any{"in": "installer", "script": "test -e /etc/os-release && echo here && exit 0"})
	if b.log.String() != "here\n" {
		t.Errorf("output %q", b.log.String())
	}
	b.fail("command", b.on(map[string]any{"args": []any{"tool", "exit", "7"}}), trivet.FaultConfiguration, false,
		"exit status 7: about to fail")
	b.fail("command", b.on(map[string]any{"args": []any{"tool", "exit", "7"}, "blame": "machine"}), trivet.FaultMachine,
		false, "exit status 7")
	b.fail("command", b.on(map[string]any{"args": []any{"none"}}), trivet.FaultConfiguration, true, "none")
	b.do("bootloader", nil) // this system's shell only prints its arguments
	if out := b.log.String(); !strings.Contains(out, "env FIRMWARE=bios\n") ||
		!strings.Contains(out, "env DISK="+b.disk+"\n") {
		t.Errorf("output:\n%s", out)
	}
}

func TestACommandThatHangsIsKilled(t *testing.T) {
	b := installed(t)
	b.killed("command", b.on(map[string]any{"args": []any{"tool", "hang"}}))
	wantNothingLeft(t, b.env.Host.(*Machine).Dir)
}

// What a killed agent left mounted does not stop the next one.
func TestLeftMountsAreSwept(t *testing.T) {
	b := installed(t)
	path, err := b.env.Host.Disk(trivet.DiskHints{Path: b.disk})
	must(t, err)
	_, err = b.env.Host.Root(t.Context(), path, 2) // and never closed
	must(t, err)
	b.do("file", map[string]any{"path": "/x"})
	wantNothingLeft(t, b.env.Host.(*Machine).Dir)
}

func TestArchiveStaysInside(t *testing.T) {
	b := onFile(t, 1<<20)
	path, err := b.env.Host.Disk(trivet.DiskHints{})
	must(t, err)
	b.add("bad", "tar", "", files(t,
		[2]string{"../../../tmp/", ""},
		[2]string{"out", "->/../../../../srv"},
		[2]string{"out/trivet-escaped", "x"},
		[2]string{"../../up", "y"},
		[2]string{".wh.kept", "an archive is no layer"},
	))
	b.do("archive", map[string]any{"image": "bad", "path": "/srv/files"})
	for name, want := range map[string]string{"srv/trivet-escaped": "x", "srv/files/up": "y",
		"srv/files/.wh.kept": "an archive is no layer"} {
		if got, err := os.ReadFile(filepath.Join(path+".root", name)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := os.Lstat("/srv/trivet-escaped"); err == nil {
		t.Error("a link led out of the tree")
	}
}
