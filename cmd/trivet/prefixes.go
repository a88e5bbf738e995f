package main

import (
	"fmt"
	"net/netip"
	"strings"
)

// prefixes is a flag of addresses and networks, separated by commas. It may be repeated.
type prefixes struct{ list *[]netip.Prefix }

func (p *prefixes) Type() string { return "addresses" }

func (p *prefixes) String() string { return strings.Join(p.GetSlice(), ",") }

// Append, Replace and GetSlice are those of pflag.SliceValue.
func (p *prefixes) Append(text string) error { return p.Set(text) }

func (p *prefixes) Replace(texts []string) error {
	*p.list = nil
	for _, text := range texts {
		if err := p.Set(text); err != nil {
			return err
		}
	}
	return nil
}

func (p *prefixes) GetSlice() (all []string) {
	for _, prefix := range *p.list {
		all = append(all, prefix.String())
	}
	return all
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
