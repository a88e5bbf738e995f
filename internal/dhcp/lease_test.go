package dhcp

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestClasslessRoutes(t *testing.T) {
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	want := []Route{{prefix("0.0.0.0/0"), addr("10.0.0.1")}, {prefix("10.17.0.0/16"), addr("10.0.0.2")},
		{To: prefix("10.27.129.0/24")}}
	text := "\x00\x0a\x00\x00\x01" + "\x10\x0a\x11\x0a\x00\x00\x02" + "\x18\x0a\x1b\x81\x00\x00\x00\x00"
	for name, rest := range map[string]string{"whole": "", "cut": "\x18\x0a\x1b\x81\x00",
		"too long": "\x21\x0a\x00\x00\x00\x00\x0a\x00\x00\x01"} {
		if diff := cmp.Diff(want, routes([]byte(text+rest)), cmpopts.EquateComparable(netip.Prefix{},
			netip.Addr{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
