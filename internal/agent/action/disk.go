package action

import (
	"fmt"
	"sync"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
)

// chosenDisks are the disks that hints were resolved to, so that all actions of a run work on the same one. The zero
// value is ready to use.
type chosenDisks struct {
	mu    sync.Mutex // guards following
	run   string     // UID
	paths map[string]string
}

// disk returns the path of the disk that an action works on: the one that its argument selects, or else the machine's.
// Hints are resolved at their first use in a run.
func (e *Env) disk(at *Attempt, arg actionspec.Disk) (string, error) {
	hints := arg.Hints
	if hints.IsZero() {
		hints = at.Run.Spec.Disk
	}
	c := &e.chosen
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != at.Run.UID {
		c.run, c.paths = at.Run.UID, map[string]string{}
	}
	if path, ok := c.paths[hints.String()]; ok {
		return path, nil
	}
	path, err := e.Host.Disk(hints)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(at.Log, "disk %s: %s\n", path, selectedBy(hints))
	at.Note("on " + path)
	c.paths[hints.String()] = path
	return path, nil
}

func selectedBy(h trivet.DiskHints) string {
	if h.IsZero() {
		return "the smallest fixed disk, as spec.disk of the machine is not set"
	}
	return "selected by " + h.String()
}
