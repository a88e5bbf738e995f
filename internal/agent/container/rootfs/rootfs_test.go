package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func tree(t *testing.T) (string, *Root) {
	t.Helper()
	outer := t.TempDir()
	dir := filepath.Join(outer, "root")
	for _, d := range []string{"etc", "usr/lib"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"root/etc/passwd": "root:x:0:0::/root:/bin/sh\nbroken\nadmin:x:1000:1001::/home/admin:/bin/sh\n",
		"root/etc/group":  "root:x:0:\nstaff:x:50:admin\n",
		"secret":          "of the installer",
	} {
		if err := os.WriteFile(filepath.Join(outer, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"lib": "/usr/lib", "up": "../../../..", "away": "/../../secret", "etc/alias": "passwd",
		"dangling": "/nowhere/at/all",
		"etc/out":  outer,
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return dir, r
}

func TestFilesStayInTheTree(t *testing.T) {
	dir, r := tree(t)
	for name, want := range map[string]string{
		"/etc/motd":               "etc/motd",
		"etc/new/deep/er":         "etc/new/deep/er",
		"/lib/modules":            "usr/lib/modules", // an absolute link begins at the tree's root
		"/up/up/top":              "top",             // and a relative one does not leave it
		"/../../x":                "x",
		"/etc/alias":              "etc/alias", // a link at the name itself is replaced
		"/etc/../etc/./dots/file": "etc/dots/file",
		"/dangling/file":          "nowhere/at/all/file", // the target of a dangling link is created
	} {
		if err := r.WriteFile(name, []byte("hello"), Meta{0o640, -1, -1}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := os.ReadFile(filepath.Join(dir, want))
		fi, _ := os.Lstat(filepath.Join(dir, want))
		if err != nil || string(got) != "hello" || fi.Mode() != 0o640 {
			t.Errorf("%s: %q, %v, %v", name, got, fi, err)
		}
	}
	if err := r.WriteFile("/etc/passwd/file", nil, Meta{0o644, -1, -1}); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a file as a directory: %v", err)
	}
	if err := r.WriteFile("/usr", nil, Meta{0o644, -1, -1}); err == nil {
		t.Error("a directory was replaced")
	}
	for _, name := range []string{"/away", "/up/secret", "/etc/out/secret"} {
		if b, err := r.ReadFile(name, 100); err == nil {
			t.Errorf("%s returned %q", name, b)
		}
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", ".*trivet-new"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestTouchFollowsLinks(t *testing.T) {
	dir, r := tree(t)
	for name, want := range map[string]string{"/dangling": "nowhere/at/all", "/new/file": "new/file",
		"/etc/passwd": "etc/passwd"} {
		f, err := r.Touch(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		f.Close()
		if _, err := os.Lstat(filepath.Join(dir, want)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, pair := range [][2]string{{"a", "b"}, {"b", "a"}} {
		if err := os.Symlink(pair[0], filepath.Join(dir, pair[1])); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Touch("/a"); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
	if link, err := r.Readlink("/dangling"); err != nil || link != "/nowhere/at/all" {
		t.Errorf("%q, %v", link, err)
	}
	if link, err := r.Readlink("/etc"); err != nil || link != "" {
		t.Errorf("%q, %v", link, err)
	}
	for range 2 {
		if err := errors.Join(r.Remove("/dangling"), r.Remove("/no/such/dir/file")); err != nil {
			t.Error(err)
		}
	}
	if _, err := r.Readlink("/dangling"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its removal: %v", err)
	}
}

func TestReadFileIsBounded(t *testing.T) {
	_, r := tree(t)
	if _, err := r.ReadFile("/etc/passwd", 10); err == nil {
		t.Error("more than the bound was read")
	}
}

func TestAccounts(t *testing.T) {
	_, r := tree(t)
	for name, want := range map[string][2]int{"root": {0, 0}, "admin": {1000, 1001}, "1000": {1000, 1001},
		"77": {77, 0}} {
		if uid, gid, err := r.User(name); err != nil || uid != want[0] || gid != want[1] {
			t.Errorf("%s: %d:%d, %v", name, uid, gid, err)
		}
	}
	for name, want := range map[string]int{"staff": 50, "50": 50, "9": 9} {
		if gid, err := r.Group(name); err != nil || gid != want {
			t.Errorf("%s: %d, %v", name, gid, err)
		}
	}
	if _, _, err := r.User("absent"); err == nil {
		t.Error("a user that does not exist")
	}
	if _, err := r.Group("absent"); err == nil {
		t.Error("a group that does not exist")
	}
}
