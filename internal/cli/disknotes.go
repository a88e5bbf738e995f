package cli

import (
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// mostDiskNotes is how many disks that fail are named.
const mostDiskNotes = 8

// diskNotes says which disks of a machine report that they fail, as its inventory has it.
func diskNotes(m *trivet.Machine) (notes []string) {
	if m.Status.Inventory == nil {
		return nil
	}
	more := 0
	for _, d := range m.Status.Inventory.Disks {
		if d.Health == nil || d.Health.Passed {
			continue
		}
		if len(notes) == mostDiskNotes {
			more++
			continue
		}
		words := []string{d.Name}
		if d.Model != "" {
			words = append(words, d.Model)
		}
		if d.Serial != "" {
			words = append(words, "serial number "+d.Serial)
		}
		notes = append(notes, fmt.Sprintf("Disk %s has reported that it fails (SMART): %s. Replace it; while no "+
			"provision has the machine, this tests it: trivet check %s", strings.Join(words, ", "), d.Health.Failing, m.Name))
	}
	if more > 0 {
		notes = append(notes, fmt.Sprintf("%d more of its disks have reported that they fail: trivet get machine %s -o yaml",
			more, m.Name))
	}
	return notes
}
