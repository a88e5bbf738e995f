package inventory

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/agent/action/block"
)

// healthTimeout is how long all disks together have to report their health. The timeouts of the commands themselves are
// longer, as the kernel resets a disk that exceeds one.
const healthTimeout = 10 * time.Second

// ReadHealth adds what the disks report of themselves (SMART), all at the same time. A disk that reports nothing, or
// does not answer in time, is left without: it must not keep the machine from its run.
func ReadHealth(ctx context.Context, disks []trivet.Disk, log *slog.Logger) {
	addHealth(ctx, disks, healthOf, log)
}

// addHealth is ReadHealth by a function that reads one disk. A read that does not return is left to itself.
func addHealth(ctx context.Context, disks []trivet.Disk, read func(path string) (trivet.DiskHealth, error),
	log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	type answer struct {
		disk   int
		health trivet.DiskHealth
		err    error
	}
	answers, waiting := make(chan answer, len(disks)), map[int]string{}
	for i, d := range disks {
		if d.Removable || d.Bus == "usb" {
			continue
		}
		waiting[i] = d.Name
		go func() {
			h, err := read(d.Name)
			answers <- answer{i, h, err}
		}()
	}
	for len(waiting) > 0 {
		select {
		case a := <-answers:
			switch {
			case a.err == nil:
				disks[a.disk].Health = &a.health
			case !errors.Is(a.err, block.ErrNoHealth):
				log.Warn("a disk's health cannot be read", "disk", waiting[a.disk], "error", a.err)
			}
			delete(waiting, a.disk)
		case <-ctx.Done():
			for _, name := range waiting {
				log.Warn("a disk has not reported its health in time", "disk", name, "timeout", healthTimeout)
			}
			return
		}
	}
}

func healthOf(path string) (trivet.DiskHealth, error) {
	d, err := block.OpenReadOnly(path)
	if err != nil {
		return trivet.DiskHealth{}, err
	}
	defer d.Close()
	h, err := d.Health()
	return h.DiskHealth, err
}
