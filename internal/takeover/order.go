package takeover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/trivet-project/trivet"
)

// Order is the decision of a head to take over, which its next start carries out. It holds for a short time only: the
// other head was off when it was written.
type Order struct {
	Cause string `json:"cause"`
	// Incarnation is that of the cluster before.
	Incarnation string `json:"incarnation"`
	// Boot identifies the boot of this host, Uptime is the time since then.
	Boot   string        `json:"boot"`
	Uptime time.Duration `json:"uptime"`
	Dir    string        `json:"dir"` // the data directory: a copy of it has no decision
}

const (
	// maxAge is how old an order may be when it is begun, and MaxAge when the recovery that it begins is complete.
	maxAge = 3 * time.Minute
	MaxAge = 10 * time.Minute
	// maxOrder bounds its file, in bytes.
	maxOrder = 16 << 10
)

func orderPath(dir string) string { return filepath.Join(dir, "takeover.json") }

// Write writes the decision to the data directory.
func Write(dir, incarnation, cause string) error {
	o := Order{Cause: cause, Incarnation: incarnation}
	err := o.stamp(dir)
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if err := renameio.WriteFile(orderPath(dir), text, 0o600); err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return nil
}

// Read returns the decision in the data directory; nil: there is none.
func Read(dir string) (*Order, error) {
	info, err := os.Stat(orderPath(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	var text []byte
	if err == nil && info.Size() <= maxOrder {
		text, err = os.ReadFile(orderPath(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	o := &Order{}
	if json.Unmarshal(text, o) != nil {
		return &Order{}, nil // it is not valid
	}
	return o, nil
}

// Remove removes the decision.
func Remove(dir string) error {
	if err := os.Remove(orderPath(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", trivet.ErrUnavailable, err)
	}
	return nil
}

// Valid reports whether the decision was written into this directory a moment ago, by the time that this host has been
// up.
func (o *Order) Valid(dir string) bool { return o.within(dir, maxAge) }

// Check returns why the decision must not be carried out any more.
func (o *Order) Check(dir string) error {
	if !o.within(dir, MaxAge) {
		return fmt.Errorf("%w: the recovery took longer than %s, and the other head may be on again", trivet.ErrConflict,
			MaxAge)
	}
	return nil
}

func (o *Order) within(dir string, age time.Duration) bool {
	now := Order{}
	return now.stamp(dir) == nil && o.Boot == now.Boot && o.Dir == now.Dir && o.Uptime <= now.Uptime &&
		now.Uptime-o.Uptime <= age
}

// CheckStamp returns why no decision could be written.
func CheckStamp(dir string) error { return new(Order).stamp(dir) }

func (o *Order) stamp(dir string) error {
	path, err := filepath.EvalSymlinks(dir)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return err
	}
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return err
	}
	o.Dir, o.Boot, o.Uptime = path, strings.TrimSpace(string(text)), time.Duration(t.Nano())
	return nil
}
