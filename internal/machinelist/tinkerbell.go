package machinelist

import (
	"cmp"
	"fmt"
	"strings"
)

// hardware is what is read of a Hardware record of Tinkerbell.
type hardware struct {
	Spec struct {
		BMC *struct {
			Name string `json:"name"`
		} `json:"bmcRef"`
		Disks []struct {
			Device string `json:"device"`
		} `json:"disks"`
		Interfaces []struct {
			DHCP struct {
				MAC      string `json:"mac"`
				Hostname string `json:"hostname"`
				Arch     string `json:"arch"`
				IP       struct {
					Address string `json:"address"`
				} `json:"ip"`
			} `json:"dhcp"`
			Netboot struct {
				AllowPXE      *bool `json:"allowPXE"`
				AllowWorkflow *bool `json:"allowWorkflow"`
			} `json:"netboot"`
		} `json:"interfaces"`
	} `json:"spec"`
}

// tinkerbellBMC is what is read of a Machine record of Tinkerbell's BMC service.
type tinkerbellBMC struct {
	Spec struct {
		Connection struct {
			Host   string `json:"host"`
			Port   int    `json:"port"`
			Secret struct {
				Name string `json:"name"`
			} `json:"authSecretRef"`
			Insecure bool `json:"insecureTLS"`
			Options  *struct {
				Redfish *struct {
					Port int `json:"port"`
				} `json:"redfish"`
			} `json:"providerOptions"`
		} `json:"connection"`
	} `json:"spec"`
}

func fillTinkerbell(e *Entry, l *located, bmcs map[string]tinkerbellBMC, o Options) error {
	var h hardware
	if err := decode(l.value, &h); err != nil {
		return err
	}
	e.name(l.Metadata.Name)
	refused := false
	for _, i := range h.Spec.Interfaces {
		address := ""
		if o.Addresses {
			address = i.DHCP.IP.Address
		}
		e.port(i.DHCP.MAC, address)
		e.arch(i.DHCP.Arch)
		refused = refused || i.Netboot.AllowPXE != nil && !*i.Netboot.AllowPXE ||
			i.Netboot.AllowWorkflow != nil && !*i.Netboot.AllowWorkflow
	}
	switch {
	case refused:
		e.cordon("Tinkerbell does not let it netboot (allowPXE, allowWorkflow)")
	case !o.Available:
		e.cordon("Hardware does not say whether it is in use")
	}
	switch {
	case len(h.Spec.Disks) == 1:
		e.Machine.Spec.Disk.Path = h.Spec.Disks[0].Device
	case len(h.Spec.Disks) > 1:
		e.note("it has %d disks there, and a record names one: spec.disk", len(h.Spec.Disks))
	}
	if h.Spec.BMC == nil {
		return nil
	}
	b, ok := bmcs[h.Spec.BMC.Name]
	if !ok {
		e.note("its BMC was left out: Machine %.60q of bmc.tinkerbell.org is not in the list", h.Spec.BMC.Name)
		return nil
	}
	c := b.Spec.Connection
	protocol := "ipmi"
	if c.Options != nil && c.Options.Redfish != nil {
		protocol, c.Port = "redfish", c.Options.Redfish.Port
	}
	address := c.Host
	if strings.Contains(address, ":") { // of IPv6
		address = "[" + strings.Trim(address, "[]") + "]"
	}
	if c.Port != 0 {
		address = fmt.Sprintf("%s:%d", address, c.Port)
	}
	e.bmc(address, protocol, cmp.Or(o.Secret, strings.ToLower(c.Secret.Name)))
	e.secretNotes(c.Insecure)
	return nil
}

// secretNotes says what the Secret of the BMC must have.
func (e *Entry) secretNotes(insecure bool) {
	if b := e.Machine.Spec.BMC; insecure && b != nil && b.Protocol == "redfish" {
		e.note("the certificate of its BMC is not verified there: that is spec.insecure of Secret %s, or its fingerprint",
			b.Secret)
	}
}
