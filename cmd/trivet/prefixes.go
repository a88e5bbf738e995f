package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// prefixes is a flag of addresses and networks, separated by commas. It may be repeated.
type prefixes struct{ list *[]netip.Prefix }

func (p *prefixes) Type() string { return "addresses" }

func (p *prefixes) String() string {
	var all []string
	for _, prefix := range *p.list {
		all = append(all, prefix.String())
	}
	return strings.Join(all, ",")
}

func (p *prefixes) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(part)
		if a, addrErr := netip.ParseAddr(part); addrErr == nil {
			prefix, err = a.Prefix(a.BitLen())
		}
		if err != nil {
			return fmt.Errorf("%q is neither an address nor a network, such as 10.0.0.5 or 10.1.0.0/16", part)
		}
		*p.list = append(*p.list, prefix.Masked())
	}
	return nil
}
