package netboot

import (
	"context"
	"errors"
	"net/netip"
)

// keeping is an address that is a machine's already, by the machine's own record or as the stranger that it was. Its
// record is written after the answer: a known machine boots without a quorum.
type keeping struct {
	mac     string
	address netip.Addr
}

// keep has the address's record written, unless it says so already.
func (d *Door) keep(p *place, a netip.Addr) {
	r, err := d.Addresses.GetShared(a.String())
	if err == nil && r.Spec.MAC == p.mac && r.Spec.Machine == p.machine.Name && r.Spec.Fixed == p.fixed().IsValid() {
		return
	}
	d.keepings.add(keeping{p.mac, a})
}

func (d *Door) writeKeeping(ctx context.Context, k keeping) error {
	p := &place{host: d.host(k.mac), network: d.networks.of(k.address)}
	if p.machine == nil || p.network == nil {
		return nil
	}
	err := d.take(ctx, p, k.address)
	if errors.Is(err, errRefused) {
		d.warn("dhcp: the address of a machine is somebody else's", "machine", p.machine.Name, "address", k.address,
			"error", err)
	}
	return err
}
