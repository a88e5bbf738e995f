package netboot

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/boot"
)

// tokenLife is how long a boot token may be spent: the fetch of kernel and initramfs and the start of the agent, on slow
// links too.
const tokenLife = 30 * time.Minute

// serveScript is GET /boot/script/{mac}.
func (d *Door) serveScript(w http.ResponseWriter, r *http.Request) {
	mac, err := trivet.CanonicalMAC(r.PathValue("mac"))
	if err != nil {
		d.fail(w, r, fmt.Errorf("%w: %w", trivet.ErrInvalid, err))
		return
	}
	text, err := d.script(mac, r)
	if err != nil {
		d.fail(w, r, fmt.Errorf("boot script for %s: %w", mac, err))
		return
	}
	w.Header().Set("Cache-Control", "no-store") // it holds a token
	writeText(w, text)
}

func (d *Door) script(mac string, r *http.Request) (string, error) {
	h := d.host(mac)
	if err := d.checkPeer(h, r); err != nil {
		return "", err
	}
	way, why := boot.Choose(h.machine, h.workflow, d.networkOf(h, peerOf(r)))
	if way == boot.Nothing {
		return "", fmt.Errorf("%w: %s", trivet.ErrNotFound, why)
	}
	d.seen(h, trivet.StepScript)
	d.metrics.scripts.WithLabelValues(string(way)).Inc()
	f := boot.ScriptFacts{Way: way, Why: why, Machine: h.name(), MAC: mac, Heads: d.bootURLs(r)}
	if way != boot.Installer {
		return boot.Script(f), nil
	}
	var err error
	if f.Token, err = d.token(h); err != nil {
		return "", err
	}
	f.API, f.CA, f.Platform = d.apiURLs(r), d.CA, d.platform(h)
	if h.machine != nil {
		f.Args, f.Journal = h.machine.Spec.KernelArgs, h.machine.Spec.Journal
	}
	return boot.Script(f), nil
}

// token lets the agent say hello as this machine, of this epoch.
func (d *Door) token(h host) (string, error) {
	t := auth.BootToken{Purpose: auth.PurposeBoot, Machine: h.name(), MAC: h.mac, Expires: d.now().Add(tokenLife)}
	if h.machine != nil {
		t.Epoch = h.machine.Status.Epoch
	}
	return d.Keys.SignBoot(t)
}

// checkPeer refuses a machine the script of another: it holds a token. It stops who asks from the address that DHCP gave
// it, not who makes one up (docs/security.md).
func (d *Door) checkPeer(h host, r *http.Request) error {
	a, err := d.Addresses.GetShared(peerOf(r).String())
	if err != nil || a.Spec.MAC == h.mac || a.Spec.Machine != "" && h.machine != nil && a.Spec.Machine == h.machine.Name {
		return nil
	}
	if !d.holds(a) {
		return nil
	}
	return fmt.Errorf("%w: %s is the address of %s", trivet.ErrForbidden, a.Name, a.Spec.MAC)
}

// platform is what the machine netboots; nil if there is none.
func (d *Door) platform(h host) *trivet.Platform {
	name := ""
	if h.machine != nil {
		name = h.machine.Spec.Platform
	}
	if name == "" {
		site, err := d.Sites.GetShared(trivet.SiteName)
		if err != nil {
			return nil
		}
		name = site.Spec.Platform
	}
	p, err := d.Platforms.GetShared(name)
	if err != nil {
		return nil
	}
	return p
}

// bootURLs are the boot doors of all heads, first the one that the machine has reached, last those that are down.
func (d *Door) bootURLs(r *http.Request) []string {
	urls := []string{urlOf(r)}
	for _, h := range d.nearest() {
		if h.Name != d.Head {
			urls = append(urls, h.Status.Boot...)
		}
	}
	return urls
}

// nearest are the heads that serve machines: this one, those that are up, the others.
func (d *Door) nearest() []*trivet.Head {
	heads := slices.DeleteFunc(slices.Collect(d.Heads.AllShared()), func(h *trivet.Head) bool { return !h.Serves() })
	far := func(h *trivet.Head) int {
		switch {
		case h.Name == d.Head:
			return 0
		case d.Live != nil && d.Live(h.Name):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(heads, func(a, b *trivet.Head) int { return cmp.Compare(far(a), far(b)) })
	return heads
}

// apiURLs are the APIs of all heads, first those at the address that the machine has reached.
func (d *Door) apiURLs(r *http.Request) []string {
	var urls []string
	for _, h := range d.nearest() {
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
