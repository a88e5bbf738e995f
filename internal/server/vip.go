package server

import (
	"fmt"
	"net/netip"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/hostnet"
)

// vip returns the address of --vip; not valid if there is none.
func (c *Config) vip() netip.Prefix {
	p, _ := netip.ParsePrefix(c.VIP)
	return p
}

// vipInterface returns --vip-interface, or the interface that DHCP is served on.
func (c *Config) vipInterface() string {
	if c.VIPInterface == "" && len(c.DHCPInterfaces) == 1 {
		return c.DHCPInterfaces[0]
	}
	return c.VIPInterface
}

func (c *Config) validateVIP() error {
	p, err := netip.ParsePrefix(c.VIP)
	switch {
	case c.VIP == "" && c.VIPInterface == "":
		return nil
	case c.VIP == "":
		return &trivet.FieldError{Field: "--vip-interface", Problem: "needs --vip ADDRESS/LENGTH"}
	case err != nil || hostnet.Check(p) != nil:
		return &trivet.FieldError{Field: "--vip",
			Problem: fmt.Sprintf("is %.60q; it must be the IPv4 address of a host (not of its "+
				"network, or broadcast) with the length of its network, such as 10.0.0.9/24", c.VIP)}
	case c.vipInterface() == "":
		return &trivet.FieldError{Field: "--vip-interface", Problem: "is missing: it does not follow from --dhcp"}
	}
	return nil
}
