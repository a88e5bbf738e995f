package cli

import (
	"encoding/json"

	"github.com/trivet-project/trivet"
)

// removed is what a bundle has instead of a value that may be secret.
const removed = "[removed]"

// fields are the fields of a value that a bundle has, with those within them; nil: all of it.
type fields map[string]fields

// all is for fields without those that may be secret.
var all fields

// bundled are, by kind, the fields of specs that are known to be harmless. What is not listed is removed: also what a
// later release adds.
var bundled = map[trivet.Kind]fields{
	"Machine": {"arch": all, "nics": all, "bmc": {"protocol": all, "console": all}, "disk": all, "journal": all,
		"platform": all, "rack": all, "cordoned": all},
	"Template": {"parameters": {"name": all}, "limits": all, "actions": {"name": all, "use": all, "timeout": all,
		"retries": all, "backoff": all}},
	"Provision": {"template": all, "machine": all, "selector": all, "alternatives": all, "hostname": all},
	"Workflow": {"machine": all, "machineUID": all, "provision": all, "provisionUID": all, "template": all,
		"attempt": all, "epoch": all, "disk": all, "images": all,
		"actions": {"name": all, "use": all, "timeout": all, "retries": all, "backoff": all}},
	"Image":    {"blob": all, "format": all, "compression": all, "rawBytes": all, "arch": all},
	"Platform": {"arch": all, "version": all, "kernel": all, "initrd": all},
	"Network": {"cidr": all, "gateway": all, "dns": all, "ntp": all, "domain": all, "mtu": all, "ranges": all,
		"dhcp": all, "unknown": all, "bootHTTPS": all, "lease": all, "newClients": all},
	"Address": {"mac": all, "network": all, "machine": all, "machineUID": all, "fixed": all},
	"MAC":     {"machine": all, "machineUID": all},
	"Site": {"platform": all, "accept": all, "discovered": all, "limits": all, "agentTimeout": all, "resets": all,
		"tokenLifetime": all},
	"Head":     {"role": all, "remove": all},
	"Key":      {"rotations": all},
	"Upgrade":  all,
	"Secret":   {"addresses": all, "insecure": all},
	"Token":    {"account": all, "accountUID": all, "expires": all, "join": all, "replace": all},
	"Account":  {"role": all},
	"Notifier": {"events": all},
	"Event":    all,
}

// harmless returns a record without what may be secret: of its spec it has the listed fields only, of its annotations
// the keys.
func harmless(kind trivet.Kind, text json.RawMessage) any {
	var record map[string]any
	if json.Unmarshal(text, &record) != nil {
		return removed
	}
	delete(record, "managed") // which has the names of fields that are removed
	keep, known := bundled[kind]
	switch spec, ok := record["spec"]; {
	case ok && !known:
		record["spec"] = removed
	case ok && keep != nil:
		record["spec"] = keep.of(spec)
	}
	if notes, ok := record["annotations"].(map[string]any); ok {
		record["annotations"] = fields{}.of(notes)
	}
	return record
}

// of returns a value with these fields only.
func (f fields) of(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = f.of(v[i])
		}
		return v
	case map[string]any:
		for name := range v {
			within, listed := f[name]
			switch {
			case !listed:
				v[name] = removed
			case within != nil:
				v[name] = within.of(v[name])
			}
		}
		return v
	}
	return removed
}
