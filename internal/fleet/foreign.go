package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// ForeignServer is a DHCP server that is not a head, in a network whose addresses Trivet assigns: one that a client
// accepted the offer of, or that answered a head.
type ForeignServer struct {
	Network   string
	Server    netip.Addr
	ServerMAC string // the host that sent its answer to a head; empty: a client reported it
	MAC       string // of the client
	Machine   string // empty: unknown
	Address   netip.Addr
}

func (s *ForeignServer) message() string {
	if s.ServerMAC != "" {
		return fmt.Sprintf("the DHCP server %s answers in this network, from the MAC %s, and is not a head: find and "+
			"stop that server, or set spec.dhcp of network %s to proxy", s.Server, s.ServerMAC, s.Network)
	}
	return fmt.Sprintf("%s accepted the address %s from the DHCP server %s, which is not a head: find and stop that "+
		"server, or set spec.dhcp of network %s to proxy", s.MAC, s.Address, s.Server, s.Network)
}

// ReportForeignServer records a DHCP server that is not a head, as an event of the network and of the machine.
func (f *Fleet) ReportForeignServer(ctx context.Context, s ForeignServer) error {
	err := f.update(ctx, func(tx *store.Tx) error {
		network, err := f.Networks.In(tx).Get(s.Network)
		if err != nil {
			return err
		}
		name := trivet.ServerEventName(s.Network, s.Server)
		record, err := f.Events.In(tx).Get(name)
		if errors.Is(err, trivet.ErrNotFound) {
			record, err = &trivet.Event{Meta: trivet.Meta{Kind: "Event", Name: name}}, nil
		}
		if err != nil {
			return err
		}
		record.Spec = trivet.EventSpec{Subject: "network/" + s.Network, SubjectUID: network.UID,
			Seq: record.Spec.Seq + 1, Time: f.now(), Reason: trivet.ReasonForeignDHCP, Message: s.message(),
			Warning: true, Head: f.head}
		return f.Events.In(tx).Put(record)
	})
	if err != nil || s.Machine == "" {
		return err
	}
	return f.onMachine(ctx, "record foreign DHCP server", s.Machine, func(t *transition) error {
		return t.warnOnce(trivet.ReasonForeignDHCP, s.message())
	})
}
