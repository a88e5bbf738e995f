package docsgen

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet/internal/reference"
)

// requiredFields are the fields that the validation of records requires, whatever else is set.
const requiredFields = `
	Machine.spec.nics.mac Machine.spec.interfaces.name Machine.spec.interfaces.bond.ports
	Machine.spec.interfaces.bond.mode Machine.spec.interfaces.vlan.link Machine.spec.interfaces.vlan.id
	Machine.spec.interfaces.routes.to Machine.spec.interfaces.routes.via
	Machine.spec.bmc.protocol Machine.spec.bmc.address Machine.spec.bmc.secret
	Template.spec.parameters.name Template.spec.actions Template.spec.actions.name Template.spec.actions.use
	Provision.spec.template
	Image.spec.blob.digest Image.spec.format
	Platform.spec.arch Platform.spec.kernel.digest Platform.spec.initrd.digest
	Platform.spec.agent.base Platform.spec.agent.program
	Network.spec.cidr Network.spec.ranges.from Network.spec.ranges.to
	Site.spec.blobs.s3 Site.spec.blobs.s3.location Site.spec.blobs.s3.secret
	Account.spec.role
	Notifier.spec.webhook.url Notifier.spec.webhook.secret Notifier.spec.mail.server Notifier.spec.mail.from
	Notifier.spec.mail.to
	BackupSchedule.spec.every BackupSchedule.spec.s3.location BackupSchedule.spec.s3.secret`

// What explain calls required is what a record without it is refused for; a choice such as that of a provision's
// machine and selector is not. Values are those that the validation permits.
func TestRules(t *testing.T) {
	src, err := parsePackage(root)
	if err != nil {
		t.Fatal(err)
	}
	var required []string
	values := map[string]string{}
	for _, k := range withRules(document(src)).Kinds {
		each(k, k.Name, func(path string, f reference.Field) {
			if f.Required {
				required = append(required, path)
			}
			var names []string
			for _, v := range f.Values {
				names = append(names, v.Value)
			}
			values[path] = strings.Join(names, " ")
		})
	}
	if got, want := strings.Join(required, " "), strings.Join(strings.Fields(requiredFields), " "); got != want {
		t.Errorf("required are\n%s\nwant\n%s", got, want)
	}
	for path, want := range map[string]string{
		"Machine.spec.bmc.protocol": "ipmi redfish exec", "Network.spec.dhcp": "server proxy off",
		"Network.spec.ranges.use": "known discovery", "Account.spec.role": "viewer operator admin",
		"Machine.spec.interfaces.bond.mode": "balance-rr active-backup balance-xor broadcast 802.3ad balance-tlb balance-alb",
		"Machine.spec.rack":                 "", "Workflow.spec.actions.use": "",
	} {
		if values[path] != want {
			t.Errorf("%s: %s; want %s", path, values[path], want)
		}
	}
}

func each(f reference.Field, path string, do func(string, reference.Field)) {
	for _, below := range f.Fields {
		do(path+"."+below.Name, below)
		each(below, path+"."+below.Name, do)
	}
}
