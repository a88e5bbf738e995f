package boot_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/workflow"
)

const mac = "52:54:00:12:34:56"

var (
	head      = netip.MustParseAddr("10.0.0.1")
	bios      = boot.Client{Arch: boot.BIOS, Loader: boot.PXELoader}
	uefi      = boot.Client{Arch: boot.UEFIx64, Loader: boot.PXELoader}
	uefiHTTP  = boot.Client{Arch: boot.UEFIx64, Loader: boot.HTTPLoader}
	arm       = boot.Client{Arch: boot.UEFIarm64, Loader: boot.PXELoader}
	other     = boot.Client{Arch: boot.OtherArch, Loader: boot.PXELoader}
	ipxe      = boot.Client{Arch: boot.UEFIx64, Loader: boot.PXELoader, IPXE: true}
	smallIPXE = boot.Client{Arch: boot.BIOS, Loader: boot.PXELoader, IPXE: true, NoHTTP: true}
	system    = boot.Client{Arch: boot.BIOS}
	uefiHTTPS = boot.Client{Arch: boot.UEFIx64, Loader: boot.HTTPLoader, HTTPS: true}
	ipxeHTTPS = boot.Client{Arch: boot.UEFIx64, Loader: boot.PXELoader, IPXE: true, HTTPS: true}
)

func network(dhcp, unknown string) *trivet.Network {
	return &trivet.Network{Meta: trivet.Meta{Name: "n1"}, Spec: trivet.NetworkSpec{DHCP: dhcp, Unknown: unknown}}
}

func TestDecide(t *testing.T) {
	const script = "http://10.0.0.1:8080/boot/script/52-54-00-12-34-56"
	tftp := func(mode boot.Mode, file string) boot.Decision {
		return boot.Decision{Mode: mode, Class: boot.PXELoader, NextServer: head, BootFile: file}
	}
	web := func(mode boot.Mode, file string) boot.Decision {
		return boot.Decision{Mode: mode, Class: boot.HTTPLoader,
			BootFile: "http://10.0.0.1:8080/ipxe/" + file}
	}
	for name, c := range map[string]struct {
		client  boot.Client
		network *trivet.Network
		unknown bool
		proxy   bool
		want    boot.Decision
	}{
		"BIOS":          {client: bios, want: tftp(boot.Serve, "undionly.kpxe")},
		"UEFI":          {client: uefi, want: tftp(boot.Serve, "snponly.efi")},
		"UEFI HTTP":     {client: uefiHTTP, want: web(boot.Serve, "snponly.efi")},
		"arm64":         {client: arm, want: tftp(boot.Serve, "snponly-arm64.efi")},
		"unknown arch":  {client: other, want: boot.Decision{Mode: boot.Serve}},
		"iPXE":          {client: ipxe, want: tftp(boot.Serve, script)},
		"iPXE, no HTTP": {client: smallIPXE, want: tftp(boot.Serve, "undionly.kpxe")},
		"system":        {client: system, want: boot.Decision{Mode: boot.Serve}},
		"unknown":       {client: bios, unknown: true, want: tftp(boot.Serve, "undionly.kpxe")},
		"unknown, waits": {client: bios, unknown: true, network: network("", "address-only"),
			want: tftp(boot.Serve, "undionly.kpxe")},
		"ignored": {client: bios, unknown: true, network: network("", "ignore"),
			want: boot.Decision{Mode: boot.Silent}},
		"known, ignore":  {client: bios, network: network("", "ignore"), want: tftp(boot.Serve, "undionly.kpxe")},
		"off":            {client: bios, network: network("off", ""), want: boot.Decision{Mode: boot.Silent}},
		"proxy":          {client: uefi, network: network("proxy", ""), want: tftp(boot.ProxyOnly, "snponly.efi")},
		"proxy, HTTP":    {client: uefiHTTP, network: network("proxy", ""), want: web(boot.ProxyOnly, "snponly.efi")},
		"proxy, iPXE":    {client: ipxe, network: network("proxy", ""), want: tftp(boot.ProxyOnly, script)},
		"proxy, system":  {client: system, network: network("proxy", ""), want: boot.Decision{Mode: boot.Silent}},
		"proxy's port":   {client: bios, proxy: true, want: tftp(boot.ProxyOnly, "undionly.kpxe")},
		"port, a system": {client: system, proxy: true, want: boot.Decision{Mode: boot.Silent}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.network == nil {
				c.network = network("", "")
			}
			got := boot.Decide(boot.Facts{MAC: mac, Client: c.client, Network: c.network, Known: !c.unknown,
				Proxy: c.proxy,
				Head:  head, URL: "http://10.0.0.1:8080"})
			if silent := got.Mode == boot.Silent; silent != (got.Reason != "") {
				t.Errorf("silent %v, because %q", silent, got.Reason)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(boot.Decision{}, "Reason"), cmp.Comparer(
				func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := boot.Decide(boot.Facts{MAC: mac, Client: bios}); got.Mode != boot.Silent || got.Reason == "" {
		t.Errorf("no network: %+v", got)
	}
}

// In a network that boots by HTTPS, each client that can gets URLs of HTTPS, from a head that serves it.
func TestDecideHTTPS(t *testing.T) {
	const file, script = "://10.0.0.1:8080/ipxe/snponly.efi", "://10.0.0.1:8080/boot/script/52-54-00-12-34-56"
	for name, c := range map[string]struct {
		client  boot.Client
		without bool // the network's option
		plain   bool // the head serves no HTTPS
		want    string
	}{
		"UEFI HTTP":           {client: uefiHTTPS, want: "https" + file},
		"iPXE with HTTPS":     {client: ipxeHTTPS, want: "https" + script},
		"iPXE without":        {client: ipxe, want: "http" + script},
		"PXE":                 {client: uefi, want: "snponly.efi"},
		"other network":       {client: uefiHTTPS, without: true, want: "http" + file},
		"other network, iPXE": {client: ipxeHTTPS, without: true, want: "http" + script},
		"head without":        {client: uefiHTTPS, plain: true, want: "http" + file},
		"BIOS's iPXE ROM":     {client: smallIPXE, want: "undionly.kpxe"},
		"an operating system": {client: system},
		"arm64 firmware, HTTP": {client: boot.Client{Arch: boot.UEFIarm64, Loader: boot.HTTPLoader, HTTPS: true},
			want: "https://10.0.0.1:8080/ipxe/snponly-arm64.efi"},
	} {
		n := network("", "")
		n.Spec.BootHTTPS = !c.without
		got := boot.Decide(boot.Facts{MAC: mac, Client: c.client, Network: n, Known: true, Head: head,
			URL: "http://10.0.0.1:8080", HTTPS: !c.plain})
		if got.BootFile != c.want {
			t.Errorf("%s: %q, want %q", name, got.BootFile, c.want)
		}
	}
}

func TestArchOf(t *testing.T) {
	for _, c := range []struct {
		numbers []uint16
		want    boot.Arch
	}{
		{nil, boot.BIOS}, {[]uint16{0}, boot.BIOS}, {[]uint16{7}, boot.UEFIx64}, {[]uint16{9}, boot.UEFIx64},
		{[]uint16{16}, boot.UEFIx64}, {[]uint16{11}, boot.UEFIarm64}, {[]uint16{6}, boot.OtherArch},
		{[]uint16{6, 7}, boot.UEFIx64}, {[]uint16{65535}, boot.OtherArch},
	} {
		if got := boot.ArchOf(c.numbers...); got != c.want {
			t.Errorf("ArchOf(%v) = %q, want %q", c.numbers, got, c.want)
		}
	}
}

func TestChoose(t *testing.T) {
	run := func(s trivet.WorkflowState) *trivet.Workflow {
		return &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w"}, Status: trivet.WorkflowStatus{State: s}}
	}
	frozen := func(s trivet.WorkflowState) *trivet.Workflow {
		w := run(s)
		w.Status.Frozen = true
		return w
	}
	for _, c := range []struct {
		state trivet.MachineState
		run   *trivet.Workflow
		want  boot.Target
	}{
		{trivet.MachineDiscovered, nil, boot.Installer},
		{trivet.MachineAvailable, nil, boot.Installer},
		{trivet.MachineAvailable, run(trivet.WorkflowFailed), boot.Installer},
		{trivet.MachineReleasing, nil, boot.Installer},
		{trivet.MachineReleasing, run(trivet.WorkflowRunning), boot.Installer},
		{trivet.MachineReleasing, run(trivet.WorkflowStopping), boot.Installer},
		{"", nil, boot.Installer},
		{trivet.MachineClaimed, run(trivet.WorkflowBooting), boot.Installer},
		{trivet.MachineProvisioning, run(trivet.WorkflowBooting), boot.Installer},
		{trivet.MachineProvisioning, run(trivet.WorkflowRunning), boot.Installer},
		{trivet.MachineProvisioning, run(trivet.WorkflowStarting), boot.LocalDisk},
		{trivet.MachineProvisioning, run(trivet.WorkflowFailed), boot.Wait},
		{trivet.MachineClaimed, nil, boot.Wait},
		{trivet.MachineActive, run(trivet.WorkflowSucceeded), boot.LocalDisk},
		{trivet.MachineQuarantined, run(trivet.WorkflowFailed), boot.Wait},
		{trivet.MachineUnverified, nil, boot.LocalDisk},
		{trivet.MachineClaimed, frozen(trivet.WorkflowBooting), boot.LocalDisk},
		{trivet.MachineProvisioning, frozen(trivet.WorkflowRunning), boot.LocalDisk},
	} {
		m := &trivet.Machine{Status: trivet.MachineStatus{State: c.state}}
		f := boot.MachineFacts{Machine: m, Workflow: c.run, WantsAgent: c.run != nil &&
			workflow.WantsAgent(&c.run.Status)}
		if got, why := boot.Choose(f); got != c.want || why == "" {
			t.Errorf("%s, %v: %s because %q, want %s", c.state, c.run, got, why, c.want)
		}
	}
	quarantined := trivet.MachineStatus{State: trivet.MachineQuarantined, Former: trivet.MachineActive}
	if got, _ := boot.Choose(boot.MachineFacts{Machine: &trivet.Machine{Status: quarantined}}); got != boot.LocalDisk {
		t.Errorf("a machine that was active before its quarantine: %s", got)
	}
	quarantined.Former = trivet.MachineReleasing
	for state, want := range map[trivet.WorkflowState]boot.Target{trivet.WorkflowBooting: boot.Installer,
		trivet.WorkflowRunning: boot.Installer, trivet.WorkflowStopping: boot.Wait, trivet.WorkflowFailed: boot.Wait} {
		f := boot.MachineFacts{Machine: &trivet.Machine{Status: quarantined}, Workflow: run(state)}
		f.WantsAgent = workflow.WantsAgent(&f.Workflow.Status)
		if got, _ := boot.Choose(f); got != want {
			t.Errorf("a machine in quarantine whose release is %s: %s, want %s", state, got, want)
		}
	}
	for policy, want := range map[string]boot.Target{
		"": boot.Installer, "enrol": boot.Installer, "address-only": boot.Wait, "ignore": boot.None,
	} {
		if got, why := boot.Choose(boot.MachineFacts{Network: network("", policy)}); got != want || why == "" {
			t.Errorf("unknown, %q: %s because %q, want %s", policy, got, why, want)
		}
	}
	if got, _ := boot.Choose(boot.MachineFacts{}); got != boot.None {
		t.Errorf("unknown in an unknown network: %s", got)
	}
}
