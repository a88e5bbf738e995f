package machinelist

import (
	"cmp"
	"strings"

	"github.com/trivet-project/trivet"
)

// bareMetalHost is what is read of a BareMetalHost of Metal3.
type bareMetalHost struct {
	Spec struct {
		Architecture string `json:"architecture"`
		BMC          struct {
			Address     string `json:"address"`
			Credentials string `json:"credentialsName"`
			Insecure    bool   `json:"disableCertificateVerification"`
		} `json:"bmc"`
		MAC        string `json:"bootMACAddress"`
		External   bool   `json:"externallyProvisioned"`
		Consumer   any    `json:"consumerRef"`
		Image      any    `json:"image"`
		RootDevice *struct {
			Path       string `json:"deviceName"`
			HCTL       string `json:"hctl"`
			Model      string `json:"model"`
			Vendor     string `json:"vendor"`
			Serial     string `json:"serialNumber"`
			MinGiB     int64  `json:"minSizeGigabytes"`
			WWN        string `json:"wwn"`
			WWNLonger  string `json:"wwnWithExtension"`
			Rotational *bool  `json:"rotational"`
		} `json:"rootDeviceHints"`
	} `json:"spec"`
	Status struct {
		Provisioning struct {
			State string `json:"state"`
		} `json:"provisioning"`
		Hardware struct {
			NICs []struct {
				MAC string `json:"mac"`
			} `json:"nics"`
		} `json:"hardware"`
	} `json:"status"`
}

// freeStates are the states of a host that no one uses.
var freeStates = map[string]bool{"": true, "unmanaged": true, "registering": true, "inspecting": true,
	"preparing": true, "available": true, "ready": true}

func fillMetal3(e *Entry, l *located, o Options) error {
	var h bareMetalHost
	if err := decode(l.value, &h); err != nil {
		return err
	}
	e.name(l.Metadata.Name)
	e.arch(h.Spec.Architecture)
	e.port(h.Spec.MAC, "")
	for _, nic := range h.Status.Hardware.NICs {
		e.port(nic.MAC, "")
	}
	e.bmc(h.Spec.BMC.Address, "ipmi", cmp.Or(o.Secret, strings.ToLower(h.Spec.BMC.Credentials)))
	e.secretNotes(h.Spec.BMC.Insecure)
	if d := h.Spec.RootDevice; d != nil {
		e.Machine.Spec.Disk = trivet.DiskHints{Path: d.Path, HCTL: d.HCTL, Model: d.Model, Serial: d.Serial,
			WWN: cmp.Or(d.WWNLonger, d.WWN), MinSize: trivet.ByteSize(min(d.MinGiB, 1<<30) << 30), Rotational: d.Rotational}
		if d.Vendor != "" {
			e.note("the vendor of its disk, %.40q, was left out: hints have model, serial or WWN", d.Vendor)
		}
	}
	state := h.Status.Provisioning.State
	switch {
	case h.Spec.External || h.Spec.Consumer != nil || h.Spec.Image != nil:
		e.cordon("Metal3 has it in use")
	case state == "" && !o.Available:
		e.cordon("the list does not say whether it is in use")
	case !freeStates[state]:
		e.cordon("Metal3 has it in state " + state)
	}
	return nil
}
