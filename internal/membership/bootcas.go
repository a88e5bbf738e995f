package membership

import (
	"context"
	"fmt"

	"github.com/trivet-project/trivet"
)

// BootCAs is the boot CAs that this head has.
type BootCAs struct{ local *Local }

// BootCAs returns this head's boot CAs; not on a witness.
func (l *Local) BootCAs() BootCAs { return BootCAs{l} }

func (b BootCAs) dir() string { return b.local.path("keys") }

// IDs returns the pins of those whose keys it has, the one that is in use first.
func (b BootCAs) IDs() []string { return b.local.keys.BootCAs() }

// Create adds a new one, and returns its pin when it is on the disk.
func (b BootCAs) Create() (pin string, err error) { return b.local.keys.CreateBootCA(b.dir()) }

// Use makes one the one in use.
func (b BootCAs) Use(first string) error { return b.local.keys.UseBootCA(b.dir(), first, false) }

// DropOthers drops the keys of all but one.
func (b BootCAs) DropOthers(only string) error { return b.local.keys.UseBootCA(b.dir(), only, true) }

// Former returns the pins of the former ones whose certificates it has, the last one first.
func (b BootCAs) Former() []string { return b.local.keys.FormerBootCAs() }

// KeepFormer drops the certificates of all but these.
func (b BootCAs) KeepFormer(pins []string) error {
	return b.local.keys.KeepFormerBootCAs(b.dir(), pins)
}

// Fetch adds those that another full head has, with those of some pins.
func (b BootCAs) Fetch(ctx context.Context, pins ...string) error {
	return fetch(ctx, b.local, keysPath(trivet.BootCAKey), fmt.Sprintf("the boot CAs %v", pins),
		func(resp *KeysResponse) (bool, error) {
			err := b.local.keys.AddBootCAs(b.dir(), resp.Ring)
			return err == nil && containsAll(b.IDs(), pins), err
		})
}
