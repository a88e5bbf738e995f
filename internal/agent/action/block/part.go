package block

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPartition means that a disk has no partition of that number.
var ErrNoPartition = errors.New("no such partition")

// Part is a partition of a disk, as the kernel has it, or else the disk's table.
type Part struct {
	Number int
	Node   string // empty if the kernel has none
	Offset int64
	Size   int64
}

// Parts lists the partitions by number. A disk without a table has none.
func (d *Device) Parts() ([]Part, error) {
	if d.isNode {
		if parts, err := nodeParts(d.path); err != nil || len(parts) > 0 {
			return parts, err
		}
	}
	t, err := d.Table()
	if err != nil {
		return nil, nil
	}
	var out []Part
	for _, p := range t.Parts {
		out = append(out, Part{Number: p.Number, Offset: t.Offset(p), Size: t.Bytes(p)})
	}
	return out, nil
}

// nodeParts reads sysfs, which has the partitions of every table that the kernel supports.
func nodeParts(path string) ([]Part, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob("/sys/class/block/" + filepath.Base(real) + "/*/partition")
	if err != nil {
		return nil, err
	}
	var out []Part
	for _, file := range dirs {
		dir := filepath.Dir(file)
		p := Part{Number: int(number(file)), Node: "/dev/" + filepath.Base(dir)}
		p.Offset, p.Size = number(dir+"/start")*512, number(dir+"/size")*512
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Part) int { return cmp.Compare(a.Number, b.Number) })
	return out, nil
}

func number(file string) int64 {
	b, _ := os.ReadFile(file)
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// OpenPart opens a partition of a disk, or the whole disk for number 0, as [Open] does.
func OpenPart(path string, n int) (*Device, error) {
	if n == 0 {
		return Open(path)
	}
	p, err := findPart(path, n)
	if err != nil {
		return nil, err
	}
	if p.Node != "" {
		return Open(p.Node)
	}
	d, err := open(path, os.O_RDWR) // other partitions may be in use
	if err != nil {
		return nil, err
	}
	d.offset, d.size = p.Offset, p.Size
	return d, nil
}

func findPart(path string, n int) (Part, error) {
	d, err := OpenReadOnly(path)
	if err != nil {
		return Part{}, err
	}
	defer d.Close()
	parts, err := d.Parts()
	if err != nil {
		return Part{}, err
	}
	i := slices.IndexFunc(parts, func(p Part) bool { return p.Number == n })
	if i < 0 {
		return Part{}, fmt.Errorf("%s has %w: %d", path, ErrNoPartition, n)
	}
	return parts[i], nil
}

// ProbePart is Probe for a partition of a disk that may be in use.
func (d *Device) ProbePart(p Part) FS { return Probe(io.NewSectionReader(d, p.Offset, p.Size)) }
