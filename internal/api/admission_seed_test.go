package api

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

const someKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIW4zK4Qe4Cn4SD0m0Qz6u1Ff8q2Yp0c1m8Q3y2yB7dF a@b"

// What cloud-init would ignore or misread is refused; what a record has already may stay.
func TestAdmitSeed(t *testing.T) {
	t.Parallel()
	laughs := "a: &a [x]\n"
	for i := range 12 {
		before := string(rune('a' + i))
		laughs += string(rune('b'+i)) + ": &" + string(rune('b'+i)) + " [*" + before + strings.Repeat(",*"+before, 9) + "]\n"
	}
	for _, c := range []struct {
		spec trivet.ProvisionSpec
		want string
	}{
		{trivet.ProvisionSpec{Hostname: "web-1.example.com", SSHKeys: []string{someKey, `from="10.0.0.0/8" ` + someKey}}, ""},
		{trivet.ProvisionSpec{UserData: "#cloud-config\npackages: [vim]\n"}, ""},
		{trivet.ProvisionSpec{UserData: "#cloud-config\n"}, ""},
		{trivet.ProvisionSpec{UserData: "#cloud-config\n# nothing yet\n"}, ""},
		{trivet.ProvisionSpec{UserData: "#cloud-config\n" + laughs}, ""},
		{trivet.ProvisionSpec{UserData: "#!/bin/sh\nif: [\n"}, ""},
		{trivet.ProvisionSpec{UserData: "## template: jinja\n#cloud-config\n{% if x %}\n"}, ""},
		{trivet.ProvisionSpec{UserData: "Content-Type: multipart/mixed; boundary=x\n\n--x\n"}, ""},
		{trivet.ProvisionSpec{NetworkData: "version: 2\nethernets: {e: {dhcp4: true}}\n"}, ""},
		{trivet.ProvisionSpec{NetworkData: "network:\n  version: 1\n  config: []\n"}, ""},
		{trivet.ProvisionSpec{NetworkData: "version: 2\n"}, ""},

		{trivet.ProvisionSpec{Hostname: "web:1"}, `spec.hostname "web:1" has the label "web:1"`},
		{trivet.ProvisionSpec{Hostname: strings.Repeat("a", 64)}, "at most 63"},
		{trivet.ProvisionSpec{SSHKeys: []string{"ssh-rsa notbase64!!"}}, "spec.sshKeys[0] is no public key"},
		{trivet.ProvisionSpec{UserData: "packages: [vim]\n"}, "begin with #cloud-config"},
		{trivet.ProvisionSpec{UserData: "#cloud-config\npackages: [vim\n"}, "spec.userData is no valid #cloud-config: [2:"},
		{trivet.ProvisionSpec{UserData: "#cloud-config\n- vim\n"}, "it is no object"},
		{trivet.ProvisionSpec{NetworkData: "ethernets: {}\n"}, "it has no version; write version: 2"},
		{trivet.ProvisionSpec{NetworkData: "version: 3\n"}, "it has no version; write version: 2"},
		{trivet.ProvisionSpec{NetworkData: "version: 1...\n"}, "it has no version"},
		{trivet.ProvisionSpec{NetworkData: "network: [a]\n"}, "it is no object"},
		{trivet.ProvisionSpec{NetworkData: "\tversion: 2\n"}, "spec.networkData is no network-config"},
	} {
		p := &trivet.Provision{Spec: c.spec}
		err := admitSeed(nil, p)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.spec, err, c.want)
		}
		if err := admitSeed(p, p); err != nil {
			t.Errorf("%+v, which it has already: %v", c.spec, err)
		}
	}
}

// FuzzAdmitSeed: no text of an operator ends a head.
func FuzzAdmitSeed(f *testing.F) {
	f.Add("#cloud-config\na: &a [*a]\n", "version: 2\n", someKey)
	f.Add("#cloud-config\n? [a]\n: b\n", "network: {version: 1}\n", "")
	f.Fuzz(func(t *testing.T, user, network, key string) {
		if len(user)+len(network) > 4096 {
			return
		}
		_ = admitSeed(nil, &trivet.Provision{Spec: trivet.ProvisionSpec{Hostname: key, UserData: user, NetworkData: network,
			SSHKeys: []string{key}}})
	})
}
