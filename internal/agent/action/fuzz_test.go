package action

import (
	"slices"
	"strings"
	"testing"
)

// Any fstab of an image yields few entries, of local types, at paths below the root, outer ones first.
func FuzzParseFstab(f *testing.F) {
	for _, text := range []string{
		"# /etc/fstab\nUUID=1234-ABCD /boot/efi vfat umask=0077 0 1\nLABEL=\"boot\" /boot ext4 defaults 0 2\n",
		"/dev/sda1 / ext4 errors=remount-ro 0 1\nproc /proc proc defaults 0 0\nhost:/x /mnt nfs defaults 0 0\n",
		"LABEL=a\\040b /srv/a\\040b\\011c\\134d xfs noauto,rw 0 0\n/dev/sdb /data auto rw",
		"x /../../etc ext4 rw\nx // ext4 rw\nx relative ext4 rw\nx /a/../.. ext4 rw\n",
		strings.Repeat("LABEL=x /x ext4 rw 0 0\n", 100), "a /\x00 ext4 rw", "\\040 / ext4",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		entries := parseFstab(text)
		if len(entries) > maxFstabEntries {
			t.Errorf("%d entries", len(entries))
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.dir, "/") || e.dir == "/" || strings.ContainsAny(e.source, `"`) || e.source == "" &&
				!strings.Contains(string(text), `"`) {
				t.Errorf("%+v", e)
			}
		}
		if !slices.IsSortedFunc(entries, func(a, b fstabEntry) int {
			return strings.Count(a.dir, "/") - strings.Count(b.dir, "/")
		}) {
			t.Errorf("an inner one comes before an outer one: %v", entries)
		}
	})
}
