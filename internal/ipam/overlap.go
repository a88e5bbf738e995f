package ipam

import "net/netip"

// Enclosing returns all subnets that contain a subnet, from the shortest prefix to the subnet itself. Two subnets
// overlap if and only if one of them encloses the other.
func Enclosing(p netip.Prefix) []netip.Prefix {
	all := make([]netip.Prefix, 0, p.Bits()+1)
	for bits := range p.Bits() + 1 {
		all = append(all, netip.PrefixFrom(p.Addr(), bits).Masked())
	}
	return all
}
