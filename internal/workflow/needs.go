package workflow

import (
	"fmt"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// Need is what an action of a run needs of its machine, because of its image.
type Need struct {
	Image string
	Arch  string           // empty: any
	Bytes int64            // that a disk must have; 0: unknown, or what the action writes to is no whole disk
	Disk  trivet.DiskHints // of the action; zero: those of the machine's record
}

// Needs returns what the images of a run need.
func Needs(w *trivet.Workflow) (needs []Need) {
	images := map[string]*trivet.ImageSpec{}
	for i := range w.Spec.Images {
		images[w.Spec.Images[i].Name] = &w.Spec.Images[i].ImageSpec
	}
	for _, a := range w.Spec.Actions {
		use, ok := actionspec.UsedImage(a)
		image := images[use.Name]
		if !ok || image == nil {
			continue
		}
		n := Need{Image: use.Name, Arch: image.Arch}
		if use.Whole {
			n.Disk, n.Bytes = use.Disk, image.RawBytes
		}
		if n.Arch != "" || n.Bytes > 0 {
			needs = append(needs, n)
		}
	}
	return needs
}

// Lacks returns what a machine lacks of what a run needs, as far as its record shows; empty where that is nothing.
func Lacks(m *trivet.Machine, needs []Need) string {
	arch, inv := m.Arch(), m.Status.Inventory
	for _, n := range needs {
		if n.Arch != "" && arch != "" && n.Arch != arch {
			return fmt.Sprintf("its architecture is not %s, that of image %s", n.Arch, n.Image)
		}
		if inv == nil || n.Bytes == 0 {
			continue
		}
		hints := n.Disk
		if hints.IsZero() {
			hints = m.Spec.Disk
		}
		if d, err := actionspec.ChooseDisk(inv.Disks, hints); err == nil && d.Bytes > 0 && d.Bytes < n.Bytes {
			return fmt.Sprintf("its disk is smaller than image %s, %s", n.Image, trivet.ByteSize(n.Bytes))
		}
	}
	return ""
}
