package netboot

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// The metadata service is EC2's, as far as cloud-init and its like read it. Who asks is known by the source address only,
// so nothing secret may be in it (docs/security.md): an installed system gets its seed on its own disk.

// serveMetadata is GET /latest/meta-data/{path}.
func (d *Door) serveMetadata(w http.ResponseWriter, r *http.Request) {
	h, err := d.asker(r)
	if err != nil {
		d.fail(w, r, err)
		return
	}
	text, ok := lookupMetadata(d.metadata(h), r.PathValue("path"))
	if !ok {
		d.fail(w, r, fmt.Errorf("metadata %q: %w", r.PathValue("path"), trivet.ErrNotFound))
		return
	}
	writeText(w, text)
}

// serveUserData is GET /latest/user-data.
func (d *Door) serveUserData(w http.ResponseWriter, r *http.Request) {
	h, err := d.asker(r)
	if err == nil && (h.workflow == nil || h.workflow.Spec.Seed.UserData == "") {
		err = fmt.Errorf("user data: %w", trivet.ErrNotFound)
	}
	if err != nil {
		d.fail(w, r, err)
		return
	}
	writeText(w, h.workflow.Spec.Seed.UserData)
}

// asker is the known machine that has the address a request came from.
func (d *Door) asker(r *http.Request) (host, error) {
	peer := peerOf(r)
	mac := d.macAt(peer)
	if mac == "" {
		return host{}, fmt.Errorf("metadata for %s: no machine has the address: %w", peer, trivet.ErrNotFound)
	}
	h := d.host(mac)
	if h.machine == nil {
		return host{}, fmt.Errorf("metadata for %s: no record has %s: %w", peer, mac, trivet.ErrNotFound)
	}
	h.address = peer
	return h, nil
}

// metadata is all of a machine's, by path.
func (d *Door) metadata(h host) map[string]string {
	md := map[string]string{
		"instance-id": h.machine.Name,
		"hostname":    h.machine.Name,
		"local-ipv4":  h.address.String(),
		"mac":         h.mac,
	}
	if h.workflow != nil {
		md["instance-id"] = h.workflow.Name // another run is another system
		if name := h.workflow.Spec.Seed.Hostname; name != "" {
			md["hostname"] = name
		}
		for i, key := range h.workflow.Spec.Seed.SSHKeys {
			md[fmt.Sprintf("public-keys/%d/openssh-key", i)] = key
		}
	}
	md["local-hostname"] = md["hostname"]
	return md
}

// lookupMetadata gives a value, or the list of what is below a path.
func lookupMetadata(md map[string]string, path string) (string, bool) {
	path = strings.TrimSuffix(path, "/")
	if value, ok := md[path]; ok {
		return value, true
	}
	prefix := ""
	if path != "" {
		prefix = path + "/"
	}
	var names []string
	for key := range md {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		switch {
		case deeper && path == "public-keys":
			name += "=" + name // EC2 lists keys as number=name
		case deeper:
			name += "/"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "\n"), len(names) > 0
}
