package action

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
	"github.com/trivet-project/trivet/internal/agent/action/gpt"
)

// makeSwap writes the header of a swap area (version 1, see Linux's union swap_header).
func makeSwap(d *block.Device, id gpt.GUID, label string) error {
	page := int64(os.Getpagesize())
	if d.Size() < 10*page {
		return finalf(trivet.FaultConfiguration, "%s is too small for swap: %d bytes", d.Path(), d.Size())
	}
	h := make([]byte, page)
	binary.LittleEndian.PutUint32(h[1024:], 1)
	binary.LittleEndian.PutUint32(h[1028:], uint32(min(d.Size()/page-1, 1<<32-1)))
	copy(h[1036:1052], id.BigEndian())
	copy(h[1052:1068], label)
	copy(h[page-10:], "SWAPSPACE2")
	if err := wipeRange(d, 0, d.Size()); err != nil {
		return fmt.Errorf("make swap on %s: %w", d.Path(), err)
	}
	if _, err := d.WriteAt(h, 0); err != nil {
		return fmt.Errorf("make swap on %s: %w", d.Path(), err)
	}
	return d.Sync()
}
