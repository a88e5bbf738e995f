package netboot

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// The metadata service is EC2's, as far as cloud-init reads it. The client is known by its source address only, so
// that nothing secret may be in it (docs/security.md): an installed system gets its seed on its own disk.

// serveMetadata is GET /latest/meta-data/{path}.
func (s *Server) serveMetadata(w http.ResponseWriter, r *http.Request) {
	h, err := s.sender(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	text, ok := lookupMetadata(s.metadata(h), r.PathValue("path"))
	if !ok {
		s.fail(w, r, fmt.Errorf("metadata %q: %w", r.PathValue("path"), trivet.ErrNotFound))
		return
	}
	writeText(w, text)
}

// serveUserData is GET /latest/user-data.
func (s *Server) serveUserData(w http.ResponseWriter, r *http.Request) {
	h, err := s.sender(r)
	if err == nil && (h.workflow == nil || h.workflow.Spec.Seed.UserData == "") {
		err = fmt.Errorf("user data: %w", trivet.ErrNotFound)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	writeText(w, h.workflow.Spec.Seed.UserData)
}

// sender returns the known machine that has the address a request came from.
func (s *Server) sender(r *http.Request) (host, error) {
	peer := peerOf(r)
	mac := s.Leases.Holder(peer)
	if mac == "" {
		return host{}, fmt.Errorf("metadata for %s: no machine has this address: %w", peer, trivet.ErrNotFound)
	}
	h := s.host(mac)
	if h.machine == nil {
		return host{}, fmt.Errorf("metadata for %s: no machine has the MAC %s: %w", peer, mac, trivet.ErrNotFound)
	}
	h.address = peer
	return h, nil
}

// metadata returns the metadata of a machine, by path.
func (s *Server) metadata(h host) map[string]string {
	md := map[string]string{
		"instance-id": h.machine.Name,
		"hostname":    h.machine.Name,
		"local-ipv4":  h.address.String(),
		"mac":         h.mac,
	}
	if h.workflow != nil {
		md["instance-id"] = strings.ReplaceAll(h.workflow.ShortName(), "/", "_") // each run installs another system
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

// lookupMetadata returns a value, or the list of the names below a path.
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
