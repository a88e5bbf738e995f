package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// What keeps a machine from its boot or its claim, and is in other records than its own. Who may not read one of these
// gets no note of it.

// notesOf returns what other records say about a machine.
func notesOf(ctx context.Context, cl *client.Client, m *trivet.Machine, w *trivet.Workflow) (notes []string, err error) {
	if p := m.Status.Provision; p != "" {
		notes = append(notes, fmt.Sprintf("Provision %s has it.", p))
	}
	site, err := readable(client.Of[trivet.Site](cl).Get(ctx, trivet.SiteName))
	if err != nil {
		return nil, err
	}
	if site != nil && bootsInstaller(m) {
		note, err := platformNote(ctx, cl, site.Spec.PlatformOf(m))
		if err != nil {
			return nil, err
		}
		notes = append(notes, note...)
	}
	addressed, waits := false, waitsForBoot(w)
	for _, nic := range m.Spec.NICs {
		if !nic.Address.IsValid() {
			continue
		}
		note, err := addressNote(ctx, cl, nic)
		if err != nil {
			return nil, err
		}
		addressed, notes = true, append(notes, note...)
	}
	if waits && !addressed {
		leased, _, err := client.Of[trivet.Address](cl).List(ctx, client.ListOptions{Fields: "spec.machine=" + m.Name})
		if leased, err = readable(leased, err); err != nil {
			return nil, err
		}
		if len(leased) == 0 {
			notes = append(notes, "None of its ports has an address: no head has assigned one by DHCP, and spec.nics has "+
				"none; see: trivet status")
			segment, err := segmentNotes(ctx, cl, func(mac string) bool {
				return slices.ContainsFunc(m.Spec.NICs, func(n trivet.NIC) bool { return n.MAC == mac })
			})
			if err != nil {
				return nil, err
			}
			notes = append(notes, segment...)
		}
	}
	return notes, nil
}

// readable returns the zero value for what the caller may not read, or what does not exist.
func readable[T any](v T, err error) (T, error) {
	if errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrForbidden) {
		var none T
		return none, nil
	}
	return v, err
}

// bootsInstaller reports whether the machine boots the installer when it netboots.
func bootsInstaller(m *trivet.Machine) bool {
	switch m.Status.State {
	case trivet.MachineActive, trivet.MachineUnverified, trivet.MachineQuarantined:
		return false
	default:
		return true
	}
}

// waitsForBoot reports whether a run waits until its machine has booted.
func waitsForBoot(w *trivet.Workflow) bool {
	return w != nil && w.Status.State == trivet.WorkflowBooting
}

func platformNote(ctx context.Context, cl *client.Client, name string) ([]string, error) {
	if name == "" {
		return []string{"There is no platform that it could boot: neither it nor the site names one; " +
			"to build one: trivet platform build"}, nil
	}
	_, err := client.Of[trivet.Platform](cl).Get(ctx, name)
	if errors.Is(err, trivet.ErrNotFound) {
		return []string{fmt.Sprintf("There is no platform that it could boot: platform %s does not exist; see: "+
			"trivet get platforms", name)}, nil
	}
	_, err = readable(0, err)
	return nil, err
}

// addressNote says which other port has the fixed address of a port.
func addressNote(ctx context.Context, cl *client.Client, nic trivet.NIC) ([]string, error) {
	a, err := readable(client.Of[trivet.Address](cl).Get(ctx, nic.Address.String()))
	if err != nil || a == nil {
		return nil, err
	}
	return leasedElsewhere(nic, a), nil
}

func leasedElsewhere(nic trivet.NIC, a *trivet.Address) []string {
	if a.Spec.MAC == "" || a.Spec.MAC == nic.MAC || a.Status.Released {
		return nil
	}
	holder := "port " + a.Spec.MAC
	if a.Spec.Machine != "" {
		holder = "machine " + a.Spec.Machine
	}
	return []string{fmt.Sprintf("Its fixed address %s is leased to %s: it can be claimed when that lease has ended, "+
		"or with another address", nic.Address, holder)}
}

// holderNote says what has the machine that a provision waits for and names.
func holderNote(ctx context.Context, cl *client.Client, p *trivet.Provision) ([]string, error) {
	if !p.Waits() || p.Spec.Machine == "" {
		return nil, nil
	}
	m, err := readable(client.Of[trivet.Machine](cl).Get(ctx, p.Spec.Machine))
	if err != nil || m == nil || m.Status.Provision == "" {
		return nil, err
	}
	return []string{fmt.Sprintf("Provision %s has machine %s, which is %s.", m.Status.Provision, m.Name,
		m.Status.State)}, nil
}

// explainMAC explains the machine that has a MAC, or why the port with it gets no address. none is the error where
// nothing is known of it.
func explainMAC(ctx context.Context, cl *client.Client, mac string, all bool, none error) (e explanation, err error) {
	record, err := readable(client.Of[trivet.MAC](cl).Get(ctx, mac))
	if err != nil {
		return e, err
	}
	if record != nil {
		return explainMachine(ctx, cl, record.Spec.Machine, all)
	}
	e.Notes, err = segmentNotes(ctx, cl, func(client string) bool { return client == mac })
	if err == nil && len(e.Notes) == 0 {
		err = none
	}
	return e, err
}

// segmentNotes says from which segments without a Network some ports ask for an address.
func segmentNotes(ctx context.Context, cl *client.Client, is func(mac string) bool) (notes []string, err error) {
	report, err := readable(cl.Status(ctx))
	if err != nil {
		return nil, err
	}
	return unservedNotes(&report.Facts, is), nil
}

func unservedNotes(f *trivet.StatusFacts, is func(mac string) bool) (notes []string) {
	for _, h := range f.Heads {
		if h.Own == nil {
			continue
		}
		for _, s := range h.Own.Segments {
			if i := slices.IndexFunc(s.Clients, is); i >= 0 {
				notes = append(notes, fmt.Sprintf("%s asks head %s for an address from segment %s, for which there is no "+
					"Network: create one whose spec.cidr contains %s", s.Clients[i], h.Name, s.Address, s.Address))
			}
		}
	}
	return notes
}
