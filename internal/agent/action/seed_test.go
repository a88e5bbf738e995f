package action

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
)

// readSeed lets cloud-init itself read a seed, and render its network for systemd-networkd.
const readSeed = `
import json, os, sys
from cloudinit import distros, helpers, settings, sources, user_data, util
from cloudinit.net import network_state, networkd
from cloudinit.sources import DataSourceNoCloud
root = sys.argv[1]
paths = helpers.Paths({"cloud_dir": root + "/var/lib/cloud", "run_dir": root + "/run"})
ds = DataSourceNoCloud.DataSourceNoCloud({}, distros.fetch("debian")("debian", {}, paths), paths)
DataSourceNoCloud.dmi.read_dmi_data = lambda key: None
ok = ds.get_data()
out = {"ok": ok, "id": ds.get_instance_id(), "host": ds.get_hostname().hostname, "keys": ds.get_public_ssh_keys(),
       "user": ds.get_userdata_raw().decode(), "vendor": [], "net": ""}
if ds.get_vendordata_raw():
    parts = user_data.UserDataProcessor(paths).process(ds.get_vendordata_raw()).walk()
    out["vendor"] = [p.get_content_type() for p in parts if p.get_content_maintype() != "multipart"]
if ds.network_config:
    state = network_state.parse_net_config_data(ds.network_config)
    renderer = networkd.Renderer({"network_conf_dir": "/net/"})
    os.makedirs(root + "/net")
    renderer.render_network_state(state, target=root)
    for name in sorted(os.listdir(root + "/net")):
        out["net"] += open(root + "/net/" + name).read()
print(json.dumps(out, indent=1, sort_keys=True))
`

func TestCloudInitReadsTheSeed(t *testing.T) {
	keys := []string{"ssh-ed25519 AAAA me@there", "ssh-rsa BBBB \"quoted\""}
	for name, c := range map[string]struct {
		run  trivet.Run
		want string
	}{
		"all": {trivet.Run{
			UID: "run-1", PhoneHomes: []string{"http://10.0.0.1:7481/phone-home/x?y=1&z=2"},
			Spec: trivet.WorkflowSpec{Machine: "m1", Seed: trivet.Seed{Hostname: "web-1", SSHKeys: keys,
				UserData: "#!/bin/sh\necho hi\n"}},
			Network: &trivet.RunNetwork{MAC: "52:54:00:00:00:01", Address: "10.0.0.7/24", Gateway: "10.0.0.1",
				DNS: []string{"10.0.0.1", "10.0.0.2"}, Domain: "lab.test", MTU: 9000},
		}, `{
 "host": "web-1",
 "id": "run-1",
 "keys": [
  "ssh-ed25519 AAAA me@there",
  "ssh-rsa BBBB \"quoted\""
 ],
 "net": "[Address]\nAddress=10.0.0.7/24\n\n[Link]\nMTUBytes=9000\n\n` +
			`[Match]\nMACAddress=52:54:00:00:00:01\nName=boot\n\n[Network]\nDHCP=no` +
			`\nDNS=10.0.0.1 10.0.0.2\nDomains=lab.test\n\n[Route]\nDestination=0.0.0.0/0\n\nGateway=10.0.0.1\n\n",
 "ok": true,
 "user": "#!/bin/sh\necho hi\n",
 "vendor": [
  "text/cloud-boothook"
 ]
}
`},
		"little": {trivet.Run{
			UID: "run-2", Spec: trivet.WorkflowSpec{Machine: "0123"},
			Network: &trivet.RunNetwork{MAC: "52:54:00:00:00:01"},
		}, `{
 "host": "0123",
 "id": "run-2",
 "keys": [],
 "net": "[Match]\nMACAddress=52:54:00:00:00:01\nName=boot\n\n[Network]\nDHCP=ipv4\n\n",
 "ok": true,
 "user": "#cloud-config\n{}\n",
 "vendor": []
}
`},
	} {
		t.Run(name, func(t *testing.T) {
			b := onFile(t, 1<<20)
			b.run = &c.run
			path, err := b.env.Host.Disk(trivet.DiskHints{})
			must(t, err)
			dir := path + ".root"
			must(t, os.MkdirAll(dir+"/var/lib/cloud/seed/nocloud", 0o755))
			must(t, os.WriteFile(dir+"/var/lib/cloud/seed/nocloud/network-config", []byte("of an older run"), 0o644))
			b.do("seed", nil)
			out, err := exec.Command("/usr/bin/python3", "-c", readSeed, dir).CombinedOutput()
			if err != nil {
				t.Fatalf("cloud-init (apt-get install cloud-init): %v: %s", err, out)
			}
			if diff := cmp.Diff(c.want, string(out)); diff != "" {
				t.Error(diff)
			}
			if fi, err := os.Stat(dir + "/var/lib/cloud/seed/nocloud/meta-data"); err != nil || fi.Mode() != 0o600 {
				t.Errorf("%v, %v", fi, err)
			}
		})
	}
	b := onFile(t, 1<<20)
	b.do("seed", nil)
	path, err := b.env.Host.Disk(trivet.DiskHints{})
	must(t, err)
	if _, err := os.Lstat(filepath.Join(path+".root",
		"var/lib/cloud/seed/nocloud/network-config")); !os.IsNotExist(err) {
		t.Errorf("without a network: %v", err)
	}
}
