package addressing

import (
	"context"
	"errors"
	"net/netip"

	"github.com/trivet-project/trivet/internal/state"
)

// binding is an address that is a machine's already, by the machine's own record or because the machine was unknown
// when it got the address. The address's record is written later: a known machine boots without a quorum.
type binding struct {
	mac     string
	address netip.Addr
}

// bindLater queues the write of the address's record, unless the record is as it must be.
func (l *Leases) bindLater(r *Request, a netip.Addr) {
	record, err := l.Addresses.GetShared(a.String())
	if err == nil && record.Spec.MAC == r.MAC && record.Spec.MachineUID == r.Machine.UID &&
		record.Spec.Fixed == r.fixed().IsValid() {
		return
	}
	l.deferred.Add(binding{r.MAC, a})
}

func (l *Leases) writeBinding(ctx context.Context, b binding) error {
	r := &Request{MAC: b.mac, Machine: first(l.Machines.SharedBy(state.ByMAC, b.mac)), Network: l.Network(b.address)}
	if r.Machine == nil || r.Network == nil {
		return nil
	}
	err := l.write(ctx, r, b.address)
	if errors.Is(err, ErrRefused) {
		l.warn("another client has the address of a machine", "machine", r.Machine.Name, "address", b.address,
			"error", err)
	}
	return err
}
