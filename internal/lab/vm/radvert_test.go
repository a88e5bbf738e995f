package vm

import (
	"net/netip"
	"sync"
	"testing"
)

// Routers of several networks advertise concurrently.
func TestSeveralAdvertisers(t *testing.T) {
	var sends sync.WaitGroup
	for _, name := range []string{"vm-radvert-a", "vm-radvert-b"} {
		n, err := NewNetwork(t.Context(), name, netip.MustParsePrefix("10.77.0.1/24"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		if n.router != nil { // nil on a host without IPv6
			sends.Go(n.router.send)
		}
	}
	sends.Wait()
}
