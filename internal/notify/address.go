package notify

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/trivet-project/trivet"
)

// checkAddress refuses a connection to an address where no receiver can be: of this link only, such as the metadata
// services of clouds, or of no host. It is asked for each address that is connected to, after names are resolved.
func checkAddress(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	a := to.Addr().Unmap()
	if a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
		return fmt.Errorf("%w: nothing is sent to %s: it is link-local, multicast or unspecified", trivet.ErrForbidden, a)
	}
	return nil
}
