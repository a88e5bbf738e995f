package block

import (
	"errors"
	"strings"
	"testing"
)

func TestExamine(t *testing.T) {
	super := "\xfc\x4e\x2b\xa9\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00ABCDEFGHIJKLMNOP"
	const size, id = 32<<20 + 4096, "4142434445464748494a4b4c4d4e4f50"
	zeros := strings.Repeat("0", 32)
	label := "LABELONE" + string(make([]byte, 12)) + "\x20\x00\x00\x00LVM2 001" + id
	for name, c := range map[string]struct {
		off  int64
		data string
		want Content
		text string
	}{
		"nothing":      {0, "", Content{}, "nothing"},
		"format 1.2":   {4096, super, Content{"RAID", id}, "a part of a RAID"},
		"format 1.1":   {0, super, Content{"RAID", id}, "a part of a RAID"},
		"format 1.0":   {32<<20 + 4096 - 8192, super, Content{"RAID", id}, "a part of a RAID"},
		"format 0.90":  {32<<20 - 64<<10, "\xfc\x4e\x2b\xa9", Content{"RAID", zeros}, "a part of a RAID"},
		"LVM":          {512, label, Content{"LVM", id}, "a physical volume of LVM"},
		"LVM, damaged": {512, label[:20] + "\xff\xff\xff\xffLVM2 001", Content{}, "nothing"},
		"a table of DOS": {446, string([]byte{4: 0x83, 8: 0x80, 13: 0x40, 64: 0x55, 65: 0xaa}), Content{Kind: tableKind},
			"a partition table"},
		"a file system": {1024 + 56, "\x53\xef", Content{Kind: "ext4"}, "a file system, ext4"},
	} {
		d, err := Open(file(t, size))
		must(t, err)
		_, err = d.WriteAt([]byte(c.data), c.off)
		must(t, err)
		if got := d.Examine(); got != c.want || got.String() != c.text {
			t.Errorf("%s: %+v (%s), want %+v (%s)", name, got, got, c.want, c.text)
		}
		must(t, d.Close())
	}
	d, err := Open(file(t, size))
	must(t, err)
	defer d.Close()
	table(t, d)
	if got := d.Examine().String(); got != "a partition table" {
		t.Errorf("a disk with partitions: %s", got)
	}
}

func TestNode(t *testing.T) {
	path := loop(t, file(t, 32<<20))
	d, err := Open(path)
	must(t, err)
	table(t, d)
	defer d.Close() // in use
	parts, err := d.Parts()
	must(t, err)
	got, err := Node(path, 2)
	if want := parts[1].Node; got != want || (err == nil) != (want != "") { // kernels may have no nodes for partitions
		t.Errorf("partition 2: %q, %v, want %q", got, err, want)
	}
	if got, err := Node(path, 0); err != nil || got != path {
		t.Errorf("the disk: %q, %v", got, err)
	}
	if _, err := Node(path, 3); !errors.Is(err, ErrNoPartition) {
		t.Errorf("a partition that does not exist: %v", err)
	}
}
