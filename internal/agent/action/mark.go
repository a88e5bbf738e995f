package action

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// mark is in the last bytes of a disk while a run erases it, and until that is verified. It names the run, so that what
// a former system wrote there is ignored.
type mark struct {
	method string
	offset int64 // how far an overwrite is
	done   bool
	noise  bool // what is read from the disk is not constant
}

// markBytes is the size of a mark: a multiple of every block size.
const markBytes = 4096

// markForm is how a mark is written: the run, whether it is done, whether the disk has noise, the offset, the method.
const markForm = "trivet: this disk is being erased\nrun %s\ndone %t\nnoise %t\noffset %d\nmethod %q\n"

// readMark returns the mark of a run; a zero one where there is none.
func readMark(d *block.Device, run string) (m mark) {
	b := make([]byte, markBytes)
	if _, err := d.ReadAt(b, d.Size()-markBytes); err != nil || run == "" {
		return mark{}
	}
	text, _, _ := bytes.Cut(b, []byte{0})
	owner := ""
	_, err := fmt.Fscanf(bytes.NewReader(text), markForm, &owner, &m.done, &m.noise, &m.offset, &m.method)
	if err != nil || owner != run || m.offset < 0 || m.offset > d.Size() {
		return mark{}
	}
	return m
}

// write writes the mark to stable storage.
func (m mark) write(d *block.Device, run string) error {
	b := make([]byte, markBytes)
	copy(b, fmt.Sprintf(markForm, run, m.done, m.noise, m.offset, m.method))
	_, err := d.WriteAt(b, d.Size()-markBytes)
	return errors.Join(err, d.Sync())
}

// clearMark removes it.
func clearMark(d *block.Device) error {
	_, err := d.WriteAt(make([]byte, markBytes), d.Size()-markBytes)
	return errors.Join(err, d.Sync())
}
