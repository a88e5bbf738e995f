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
	"github.com/trivet-project/trivet/internal/netconfig"
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

// seedFiles are what cloud-init's NoCloud source reads (22.4 requires meta-data and user-data). They are
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
	if err := errors.Join(err, errVendor); err != nil {
		return nil, finalf(trivet.FaultConfiguration, "render the seed: %w", err)
	}
	// user-data last: cloud-init ignores a seed without it, and thereby an incomplete one.
	return []seedFile{{"meta-data", metaJSON}, {"vendor-data", vendor}, {"network-config", networkConfig(run)},
		{"user-data", user}}, nil
}

func hostname(run *trivet.Run) string {
	if h := run.Spec.Seed.Hostname; h != "" {
		return h
	}
	return run.Spec.Machine
}

// networkConfig is the provision's own, or what the head made of the machine's interfaces, or the boot port's network
// (version 2). nil means that cloud-init finds a port by itself and uses DHCP.
func networkConfig(run *trivet.Run) []byte {
	if own := run.Spec.Seed.NetworkData; own != "" {
		return []byte(own)
	}
	return netconfig.Render(nil, run.Network)
}

func encode(header string, v any) ([]byte, error) {
	b := bytes.NewBufferString(header)
	j := json.NewEncoder(b)
	j.SetEscapeHTML(false)
	j.SetIndent("", "  ")
	err := j.Encode(v)
	return b.Bytes(), err
}
