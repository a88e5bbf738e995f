package action

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/agent/container/rootfs"
)

func (e *Env) seed(ctx context.Context, at *Attempt, s *actionspec.Seed) error {
	files, err := seedFiles(at.Run)
	if err != nil {
		return err
	}
	return e.inRoot(ctx, at, s.Root, func(root *Root) error {
		tree, err := rootfs.Open(root.Dir)
		if err != nil {
			return err
		}
		defer tree.Close()
		for _, f := range files {
			name := path.Join(s.Path, f.name)
			err := tree.Remove(name)
			if f.data != nil {
				err = tree.WriteFile(name, f.data, rootfs.Meta{Mode: 0o600, UID: own(0), GID: own(0)})
			}
			if err != nil {
				return fmt.Errorf("write the seed: %w", err)
			}
		}
		at.Note("seed for " + hostname(at.Run) + " in " + s.Path)
		return nil
	})
}

// seedFile is one file of a NoCloud seed; without data it is removed.
type seedFile struct {
	name string
	data []byte
}

// seedFiles are what cloud-init's NoCloud source reads (22.4 wants meta-data and user-data to be there). They are
// JSON, which is YAML without quoting rules.
func seedFiles(run *trivet.Run) ([]seedFile, error) {
	meta := map[string]any{"instance-id": run.UID, "local-hostname": hostname(run)}
	if keys := run.Spec.Seed.SSHKeys; len(keys) > 0 {
		meta["public-keys"] = keys
	}
	user := []byte(run.Spec.Seed.UserData)
	if len(user) == 0 {
		user = []byte("#cloud-config\n{}\n")
	}
	metaJSON, err := encode("", meta)
	vendor, errVendor := phoneHome(run, cloudState)
	network, errNetwork := networkConfig(run)
	if err := errors.Join(err, errVendor, errNetwork); err != nil {
		return nil, finalf(trivet.FaultConfiguration, "render the seed: %w", err)
	}
	// user-data last: cloud-init ignores a seed without it, and thereby an incomplete one.
	return []seedFile{{"meta-data", metaJSON}, {"vendor-data", vendor}, {"network-config", network},
		{"user-data", user}}, nil
}

func hostname(run *trivet.Run) string {
	if h := run.Spec.Seed.Hostname; h != "" {
		return h
	}
	return run.Spec.Machine
}

// networkConfig is the provision's own, or the boot port's network as netplan writes it (version 2). nil means that
// cloud-init finds a port by itself and uses DHCP.
func networkConfig(run *trivet.Run) ([]byte, error) {
	if own := run.Spec.Seed.NetworkData; own != "" {
		return []byte(own), nil
	}
	n := run.Network
	if n == nil || n.MAC == "" {
		return nil, nil
	}
	port := map[string]any{"match": map[string]any{"macaddress": n.MAC}}
	if n.Address == "" {
		port["dhcp4"] = true
	} else {
		port["addresses"] = []string{n.Address}
	}
	if n.Address != "" && n.Gateway != "" {
		port["routes"] = []any{map[string]any{"to": "0.0.0.0/0", "via": n.Gateway}}
	}
	if n.Address != "" && len(n.DNS) > 0 {
		servers := map[string]any{"addresses": n.DNS}
		if n.Domain != "" {
			servers["search"] = []string{n.Domain}
		}
		port["nameservers"] = servers
	}
	if n.MTU != 0 {
		port["mtu"] = n.MTU
	}
	return encode("", map[string]any{"version": 2, "ethernets": map[string]any{"boot": port}})
}

func encode(header string, v any) ([]byte, error) {
	b := bytes.NewBufferString(header)
	j := json.NewEncoder(b)
	j.SetEscapeHTML(false)
	j.SetIndent("", "  ")
	err := j.Encode(v)
	return b.Bytes(), err
}
