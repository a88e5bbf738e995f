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
}

// maxAge is how old an order may be that is carried out, and maxOrder bounds its file, in bytes.
const (
	maxAge   = time.Minute
	maxOrder = 16 << 10
)

func orderPath(dir string) string { return filepath.Join(dir, "takeover.json") }

// Write writes the decision to the data directory.
func Write(dir, incarnation, cause string) error {
	o := Order{Cause: cause, Incarnation: incarnation}
	err := o.stamp()
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
	if errors.Is(err, fs.ErrNotExist) {
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

// Valid reports whether the decision was written a moment ago, by the time that this host has been up.
func (o *Order) Valid() bool {
	now := Order{}
	return now.stamp() == nil && o.Boot == now.Boot && o.Uptime <= now.Uptime && now.Uptime-o.Uptime <= maxAge
}

func (o *Order) stamp() error {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return err
	}
	o.Boot, o.Uptime = strings.TrimSpace(string(text)), time.Duration(t.Nano())
	return nil
}
