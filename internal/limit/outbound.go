package limit

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/trivet-project/trivet"
)

// CheckOutbound refuses a connection to an address where no server is that a record may name: of this link only, such as
// the metadata services of clouds, or of no host. It is a [net.Dialer]'s ControlContext, so it is asked for each address
// that is connected to, after names are resolved.
func CheckOutbound(_ context.Context, _, address string, _ syscall.RawConn) error {
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
