package machinelist

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// maasMachine is what is read of a machine as "maas PROFILE machines read" prints it. Its power parameters are not in
// that; where someone adds them, as "maas PROFILE machine power-parameters" prints them, the BMC is imported.
type maasMachine struct {
	SystemID        string `json:"system_id"`
	Hostname        string `json:"hostname"`
	Architecture    string `json:"architecture"`
	StatusName      string `json:"status_name"`
	PowerType       string `json:"power_type"`
	PowerParameters struct {
		Address string `json:"power_address"`
	} `json:"power_parameters"`
	Boot       *maasInterface  `json:"boot_interface"`
	Interfaces []maasInterface `json:"interface_set"`
	Zone       struct {
		Name string `json:"name"`
	} `json:"zone"`
	Pool struct {
		Name string `json:"name"`
	} `json:"pool"`
	Tags []string `json:"tag_names"`
}

type maasInterface struct {
	Name  string `json:"name"`
	MAC   string `json:"mac_address"`
	Type  string `json:"type"`
	Links []struct {
		Mode    string `json:"mode"`
		Address string `json:"ip_address"`
	} `json:"links"`
}

// fixed returns the address that the port always has; empty: none.
func (i *maasInterface) fixed() string {
	for _, l := range i.Links {
		if l.Mode == "static" {
			return l.Address
		}
	}
	return ""
}

// readMAAS returns the machines of an export of MAAS.
func readMAAS(list []any, o Options) (all []*Entry, err error) {
	for i, value := range list {
		e, m := newEntry(fmt.Sprint("machine ", i+1)), maasMachine{}
		if err := decode(value, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Where, err)
		}
		if m.SystemID == "" {
			return nil, fmt.Errorf("%w: %s has no system_id: the list is not one of MAAS, as \"maas PROFILE machines read\" "+
				"prints it", trivet.ErrInvalid, e.Where)
		}
		m.fill(e, o)
		all = append(all, e)
	}
	return all, nil
}

func (m *maasMachine) fill(e *Entry, o Options) {
	e.name(m.Hostname)
	e.arch(m.Architecture)
	ports := m.Interfaces
	if m.Boot != nil { // the first one of the record
		ports = append([]maasInterface{*m.Boot}, ports...)
	}
	for i := range ports {
		if ports[i].Type != "" && ports[i].Type != "physical" {
			e.note("interface %.40s (%.20s) was left out: write bonds and VLANs in spec.interfaces",
				cmp.Or(ports[i].Name, ports[i].MAC), ports[i].Type)
			continue // it has the MAC of a port
		}
		address := ""
		if o.Addresses {
			address = ports[i].fixed()
		}
		e.port(ports[i].MAC, address)
	}
	if m.PowerParameters.Address == "" && m.PowerType != "" && m.PowerType != "manual" {
		e.note("its BMC (%.40s) was left out: the export has no power parameters", m.PowerType)
	} else {
		e.bmc(m.PowerParameters.Address, m.PowerType, o.Secret)
	}
	if m.Zone.Name != "" && m.Zone.Name != "default" {
		e.label("zone", m.Zone.Name)
	}
	if m.Pool.Name != "" && m.Pool.Name != "default" {
		e.label("pool", m.Pool.Name)
	}
	for _, tag := range m.Tags {
		e.label(tag, "true")
	}
	if status := strings.ToLower(m.StatusName); status != "ready" && status != "new" {
		e.cordon("MAAS has it as " + cmp.Or(m.StatusName, "of unknown status"))
	}
}
