package netboot

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/boot"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/workflow"
)

// tokenTTL is how long a boot token is valid: it covers the fetch of kernel and initramfs and the start of the
// agent, on slow links too.
const tokenTTL = 30 * time.Minute

// serveScript is GET /boot/script/{mac}.
func (s *Server) serveScript(w http.ResponseWriter, r *http.Request) {
	mac, err := trivet.CanonicalMAC(r.PathValue("mac"))
	if err != nil {
		s.fail(w, r, fmt.Errorf("%w: %w", trivet.ErrInvalid, err))
		return
	}
	text, err := s.script(mac, r)
	if err != nil {
		s.fail(w, r, fmt.Errorf("boot script for %s: %w", mac, err))
		return
	}
	w.Header().Set("Cache-Control", "no-store") // it contains a token
	writeText(w, text)
}

func (s *Server) script(mac string, r *http.Request) (string, error) {
	if mac == dhcp.ProbeMAC && s.isHead(peerOf(r)) {
		return s.probeScript(r), nil
	}
	h, err := s.bootingHost(mac, r)
	if err != nil {
		return "", err
	}
	target, reason := boot.Choose(boot.MachineFacts{
		Machine: h.machine, Workflow: h.workflow, Network: s.networkOf(h, peerOf(r)),
		WantsAgent: h.workflow != nil && workflow.WantsAgent(&h.workflow.Status),
	})
	if target == boot.None {
		return "", fmt.Errorf("%w: %s", trivet.ErrNotFound, reason)
	}
	s.reached(h, trivet.StepScript)
	s.metrics.scripts.WithLabelValues(string(target)).Inc()
	f := boot.ScriptFacts{Target: target, Reason: reason, Machine: h.name(), MAC: mac, Heads: s.bootURLs(r)}
	if target != boot.Installer {
		return boot.Script(f), nil
	}
	if f.Token, err = s.token(h); err != nil {
		return "", err
	}
	f.API, f.CA, f.Platform = s.apiURLs(r), s.CA, s.platform(h)
	if h.machine != nil {
		f.Args, f.Journal = h.machine.Spec.KernelArgs, h.machine.Spec.Journal
	}
	return boot.Script(f), nil
}

// token returns a boot token: it lets the agent send its hello as this machine in this epoch.
func (s *Server) token(h host) (string, error) {
	t := auth.BootToken{Purpose: auth.PurposeBoot, Machine: h.name(), MAC: h.mac, Expires: time.Now().Add(tokenTTL)}
	if h.machine != nil {
		t.Epoch = h.machine.Status.Epoch
	}
	return s.Keys.SignBoot(t)
}

// platform returns the platform that the machine netboots; nil if there is none.
func (s *Server) platform(h host) *trivet.Platform {
	var site trivet.SiteSpec
	if r, err := s.Sites.GetShared(trivet.SiteName); err == nil {
		site = r.Spec
	}
	p, err := s.Platforms.GetShared(site.PlatformOf(h.machine))
	if err != nil {
		return nil
	}
	return p
}

// bootURLs returns the boot servers of all heads, by HTTPS where the script is fetched so: first the one that the
// machine has reached, last those that are down.
func (s *Server) bootURLs(r *http.Request) []string {
	urls := []string{urlOf(r)}
	for _, h := range s.byPreference() {
		if h.Name != s.Head {
			urls = append(urls, h.Status.Boot...)
		}
	}
	for i, u := range urls {
		if _, rest, ok := strings.Cut(u, "://"); ok {
			urls[i] = schemeOf(r) + "://" + rest
		}
	}
	return urls
}

// byPreference returns the heads that serve machines: this one, those that are up, the others.
func (s *Server) byPreference() []*trivet.Head {
	heads := slices.DeleteFunc(slices.Collect(s.Heads.AllShared()), func(h *trivet.Head) bool { return !h.Serves() })
	rank := func(h *trivet.Head) int {
		switch {
		case h.Name == s.Head:
			return 0
		case s.Live != nil && s.Live(h.Name):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(heads, func(a, b *trivet.Head) int { return cmp.Compare(rank(a), rank(b)) })
	return heads
}

// apiURLs returns the API servers of all heads, first those at the address that the machine has reached.
func (s *Server) apiURLs(r *http.Request) []string {
	var urls []string
	for _, h := range s.byPreference() {
		urls = append(urls, h.Status.API...)
	}
	reached := hostOf(urlOf(r))
	slices.SortStableFunc(urls, func(a, b string) int {
		return cmp.Compare(distance(hostOf(a), reached), distance(hostOf(b), reached))
	})
	return urls
}

func distance(a, b string) int {
	if a == b {
		return 0
	}
	return 1
}
