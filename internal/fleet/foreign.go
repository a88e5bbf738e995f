package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// ForeignServer is a DHCP server that is not a head, in a network whose addresses Trivet assigns, and a client that
// accepted its offer.
type ForeignServer struct {
	Network string
	Server  netip.Addr
	MAC     string
	Machine string // empty: unknown
	Address netip.Addr
}

func (s *ForeignServer) message() string {
	return fmt.Sprintf("%s accepted the address %s from the DHCP server %s, which is not a head: find and stop that "+
		"server, or set spec.dhcp of network %s to proxy", s.MAC, s.Address, s.Server, s.Network)
}

// ReportForeignServer records a DHCP server that is not a head, as an event of the network and of the machine.
func (f *Fleet) ReportForeignServer(ctx context.Context, s ForeignServer) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		name := trivet.ServerEventName(s.Network, s.Server)
		record, err := f.Events.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) {
			record, err = &trivet.Event{Meta: trivet.Meta{Kind: "Event", Name: name}}, nil
		}
		if err != nil {
			return err
		}
		record.Spec = trivet.EventSpec{Subject: "network/" + s.Network, Seq: record.Spec.Seq + 1, Time: f.now(),
			Reason: trivet.ReasonForeignDHCP, Message: s.message(), Warning: true, Head: f.head}
		return f.Events.In(tx).Put(record)
	})
	if err != nil || s.Machine == "" {
		return err
	}
	return f.onMachine(ctx, "record foreign DHCP server", s.Machine, func(t *transition) error {
		return t.warnOnce(trivet.ReasonForeignDHCP, s.message())
	})
}
