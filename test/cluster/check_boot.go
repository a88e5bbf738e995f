package cluster

// checkLeases checks that no client got an address that another one has: all leases are longer than a run.
func (h *History) checkLeases(r *report) {
	byAddress, byMAC := map[string]lease{}, map[string]lease{}
	for _, l := range h.Leases {
		if first, ok := byAddress[l.Address]; ok && first.MAC != l.MAC {
			r.add(ErrAddressTwice, "%s was given to %s by %s and to %s by %s",
				l.Address, first.MAC, first.Head, l.MAC, l.Head)
		} else if !ok {
			byAddress[l.Address] = l
		}
		if first, ok := byMAC[l.MAC]; ok && first.Address != l.Address {
			r.add(ErrAddressChanged, "%s got %s from %s at %s, and %s from %s at %s",
				l.MAC, first.Address, first.Head, first.Return, l.Address, l.Head, l.Return)
		}
		byMAC[l.MAC] = l
	}
	holders := map[string]string{}
	for _, c := range h.Whole {
		if c.Kind != "Address" {
			continue
		}
		if was := holders[c.Name]; was != "" && c.Machine != "" && c.Machine != was {
			r.add(ErrAddressTwice, "by its record %s passed from %s to %s at revision %d",
				c.Name, was, c.Machine, c.Revision)
		}
		holders[c.Name] = c.Machine
	}
}
