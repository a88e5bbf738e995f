package netboot_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
	"github.com/trivet-project/trivet/internal/dhcp"
	"github.com/trivet-project/trivet/internal/netboot"
	"github.com/trivet-project/trivet/internal/store"
)

// ask sends a request to the server as from a peer.
func (r *fixture) ask(method, path, peer string) *http.Response {
	q := httptest.NewRequest(method, "http://10.0.0.1:8080"+path, nil)
	q.RemoteAddr = peer + ":4711"
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	return w.Result()
}

// leased returns the address of a port, which it gets if it has none.
func (r *fixture) leased(t testing.TB, mac string) string {
	t.Helper()
	return r.dora(t, mac).Address.String()
}

func body(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(b)
}

// withPlatform gives the site a platform, and the heads URLs.
func (r *fixture) withPlatform(t testing.TB) {
	t.Helper()
	blob := func(c string) trivet.BlobRef { return trivet.BlobRef{Digest: "sha256:" + strings.Repeat(c, 64)} }
	r.write(t, func(tx *store.Tx) error {
		must(t, r.Platforms.In(tx).Create(&trivet.Platform{Meta: trivet.Meta{Name: "debian"},
			Spec: trivet.PlatformSpec{Arch: "amd64", Kernel: blob("a"), Initrd: blob("b")}}))
		must(t, r.Sites.In(tx).Create(&trivet.Site{Meta: trivet.Meta{Name: trivet.SiteName},
			Spec: trivet.SiteSpec{Platform: "debian"}}))
		for i, name := range []string{"head0", "head1"} {
			h, err := r.Heads.In(tx).Get(name)
			if err != nil {
				h = &trivet.Head{Meta: trivet.Meta{Name: name}}
			}
			h.Status.API = []string{fmt.Sprintf("https://10.0.0.%d:7443", i+1)}
			h.Status.Boot = []string{fmt.Sprintf("http://10.0.0.%d:8080", i+1)}
			must(t, r.Heads.In(tx).Put(h))
		}
		return nil
	})
}

// run starts a run of m1 in a state, with the first steps of its boot done.
func (r *fixture) run(t testing.TB, state trivet.WorkflowState, done ...string) {
	t.Helper()
	w := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w1"},
		Spec: trivet.WorkflowSpec{Machine: "m1", Seed: trivet.Seed{
			Hostname: "web1", SSHKeys: []string{"ssh-ed25519 AAAA one", "ssh-ed25519 BBBB two"},
			UserData: "#cloud-config\n"}}}
	w.Status.State = state
	for _, step := range trivet.BootSteps {
		s := trivet.Step{Name: step}
		if slices.Contains(done, step) {
			s.State = trivet.StepDone
		}
		w.Status.Steps = append(w.Status.Steps, s)
	}
	r.write(t, func(tx *store.Tx) error {
		m, err := r.Machines.In(tx).Get("m1")
		must(t, err)
		m.Status.State, m.Status.Workflow, m.Status.Epoch = trivet.MachineProvisioning, "w1", 7
		must(t, r.Machines.In(tx).Put(m))
		return r.Workflows.In(tx).Put(w)
	})
}

func scriptOf(mac string) string { return "/boot/script/" + strings.ReplaceAll(mac, ":", "-") }

func TestScriptCarriesAToken(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	r.run(t, trivet.WorkflowBooting)
	script := body(t, r.ask("GET", scriptOf(knownMAC), r.leased(t, knownMAC)))
	for _, want := range []string{"installer", " trivet.url=https://10.0.0.1:7443,https://10.0.0.2:7443 ",
		" trivet.ca=sha256:ca ", " trivet.machine=m1 ", "set head http://10.0.0.2:8080\n",
		"${head}/boot/kernel/52-54-00-00-00-01/sha256:aaaa"} {
		if !strings.Contains(script, want) {
			t.Errorf("no %q in\n%s", want, script)
		}
	}
	_, rest, _ := strings.Cut(script, "trivet.token=")
	text, _, _ := strings.Cut(rest, " ")
	token, err := r.keys.VerifyBoot(auth.PurposeBoot, text, time.Now())
	must(t, err)
	token.Expires = time.Time{}
	if want := (auth.BootToken{Purpose: auth.PurposeBoot, Machine: "m1", MAC: knownMAC, Epoch: 7}); token != want {
		t.Errorf("token %+v, want %+v", token, want)
	}
}

func TestScriptFollowsTheMachine(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	for state, want := range map[trivet.WorkflowState]string{
		trivet.WorkflowBooting: "): booting the installer,", trivet.WorkflowRunning: "): booting the installer,",
		trivet.WorkflowStarting: "): booting the local disk,",
		trivet.WorkflowFailed:   "): waiting,",
	} {
		r.run(t, state)
		if script := body(t, r.ask("GET", scriptOf(knownMAC), r.leased(t, knownMAC))); !strings.Contains(script, want) {
			t.Errorf("%s: no %q in\n%s", state, want, script)
		}
	}
	unknown := body(t, r.ask("GET", scriptOf(unknownMAC), r.leased(t, unknownMAC)))
	for _, want := range []string{"trivet.machine=m-525400000099 ", "~m-525400000099~525400000099~0~"} {
		if !strings.Contains(unknown, want) {
			t.Errorf("an unknown machine does not enrol itself: no %q in\n%s", want, unknown)
		}
	}
}

func TestScriptIsRefused(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	ack := r.dora(t, unknownMAC)
	own := ack.Address.String()
	for _, c := range []struct {
		path, peer string
		status     int
	}{
		{"/boot/script/nonsense", own, http.StatusBadRequest},
		{"/boot/script/" + strings.Repeat("5", 4000), own, http.StatusBadRequest},
		{"/boot/script/..%2f..%2fetc%2fpasswd", own, http.StatusBadRequest},
		{scriptOf(unknownMAC), own, http.StatusOK},
		{scriptOf(knownMAC), own, http.StatusForbidden}, // a neighbour's
		{scriptOf(fixedMAC), "10.0.0.20", http.StatusOK},
		{scriptOf(knownMAC), "10.0.0.77", http.StatusForbidden},   // which no one has
		{scriptOf(knownMAC), "10.0.0.20", http.StatusForbidden},   // fixed for another machine
		{scriptOf(unknownMAC), "192.0.2.1", http.StatusForbidden}, // from an unknown network
		{scriptOf(unknownMAC), "127.0.0.1", http.StatusForbidden}, // a program on this head, such as a load balancer
		{"/ipxe/snponly.efi", own, http.StatusOK},
		{"/ipxe/snponly.efi", "192.0.2.1", http.StatusForbidden},
		{"/blob/sha256:00", "192.0.2.1", http.StatusForbidden},
		{"/latest/meta-data/", "192.0.2.1", http.StatusForbidden},
		{"/livez", "192.0.2.1", http.StatusOK},
	} {
		if resp := r.ask("GET", c.path, c.peer); resp.StatusCode != c.status {
			t.Errorf("%.60s from %s: %s %s; want %d", c.path, c.peer, resp.Status, body(t, resp), c.status)
		}
	}
	if resp := r.ask("POST", scriptOf(unknownMAC), own); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", resp.Status)
	}
}

// What a load balancer passes on has its address as the source: that is not taken for a machine's.
func TestScriptThroughAProxy(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	q := httptest.NewRequest("GET", "http://10.0.0.1:8080"+scriptOf(knownMAC), nil)
	q.RemoteAddr = r.leased(t, knownMAC) + ":4711"
	q.Header.Set("X-Forwarded-For", "10.0.0.9")
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "directly") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Where another server assigns the addresses, a port has the one that it was heard to request.
func TestScriptInAProxyNetwork(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	r.write(t, func(tx *store.Tx) error {
		n, err := r.Networks.In(tx).Get("lan")
		must(t, err)
		n.Spec.DHCP = "proxy"
		return r.Networks.In(tx).Put(n)
	})
	get := func(mac, peer string) int { return r.ask("GET", scriptOf(mac), peer).StatusCode }
	if got := get(knownMAC, "10.0.0.70"); got != http.StatusOK {
		t.Errorf("a port that was not heard: %d", got)
	}
	r.ServeDHCP(t.Context(), packet(t, dhcp.Request, knownMAC, with(ipxe, wanted("10.0.0.70"),
		server("10.0.0.53"))...))
	for _, c := range []struct {
		mac, peer string
		status    int
	}{
		{knownMAC, "10.0.0.70", http.StatusOK},
		{knownMAC, "10.0.0.71", http.StatusForbidden},  // a neighbour
		{fixedMAC, "10.0.0.70", http.StatusForbidden},  // a neighbour's
		{unknownMAC, "10.0.0.1", http.StatusForbidden}, // a proxy on a head
		{unknownMAC, "10.0.0.71", http.StatusOK},
	} {
		if got := get(c.mac, c.peer); got != c.status {
			t.Errorf("%s from %s: %d, want %d", c.mac, c.peer, got, c.status)
		}
	}
}

// Each step of a boot is reported once, even if it is repeated, and later only if it is new information.
func TestBootProgress(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	blobs := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/blob/sha256:missing" {
			http.NotFound(w, q)
			return
		}
		_, _ = io.WriteString(w, q.URL.Path)
	})
	r.open(t, netboot.Config{Blobs: blobs})
	r.run(t, trivet.WorkflowBooting, trivet.StepPowerOn)
	r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, knownMAC, system...)) // an old system, not a boot
	for range 3 {
		r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, fixedMAC, uefiPXE...)) // has no run
	}
	r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, knownMAC, uefiPXE...))
	r.stepsAfter(t, 1)
	r.ask("GET", scriptOf(knownMAC), r.leased(t, knownMAC))
	r.stepsAfter(t, 1)
	const initrd = "/boot/initrd/52-54-00-00-00-01/"
	if resp := r.ask("GET", initrd+"sha256:missing", r.leased(t, knownMAC)); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.Status)
	}
	r.ask("HEAD", initrd+"sha256:b", r.leased(t, knownMAC))
	r.ask("GET", "/boot/kernel/52-54-00-00-00-01/sha256:a", r.leased(t, knownMAC))
	if got := body(t, r.ask("GET", initrd+"sha256%3Ab", r.leased(t, knownMAC))); got != "/blob/sha256:b" {
		t.Errorf("the initramfs is %q", got)
	}
	if diff := cmp.Diff([]string{"m1 dhcp", "m1 boot-script", "m1 kernel"}, r.stepsAfter(t, 1)); diff != "" {
		t.Error(diff)
	}
	r.run(t, trivet.WorkflowRunning, trivet.BootSteps...)
	r.ServeDHCP(t.Context(), packet(t, dhcp.Discover, knownMAC, uefiPXE...))
	r.ask("GET", scriptOf(knownMAC), r.leased(t, knownMAC)) // the machine was reset
	if got := r.stepsAfter(t, 1); len(got) != 4 || got[3] != "m1 boot-script" {
		t.Errorf("after a reset: %q", got)
	}
}

const metadataList = "hostname\ninstance-id\nlocal-hostname\nlocal-ipv4\nmac\npublic-keys/"

func TestMetadata(t *testing.T) {
	r := newFixture(t)
	r.run(t, trivet.WorkflowStarting)
	own := r.dora(t, knownMAC).Address.String()
	for path, want := range map[string]string{
		"/latest/meta-data/":                                   metadataList,
		"/latest/meta-data/hostname":                           "web1",
		"/2009-04-04/meta-data/instance-id":                    "w1",
		"/latest/meta-data/local-ipv4":                         own,
		"/latest/meta-data/mac":                                knownMAC,
		"/2009-04-04/meta-data/public-keys/":                   "0=0\n1=1",
		"/2009-04-04/meta-data/public-keys/1/":                 "openssh-key",
		"/2009-04-04/meta-data/public-keys/1/openssh-key":      "ssh-ed25519 BBBB two",
		"/latest/user-data":                                    "#cloud-config\n",
		"/2009-04-04/user-data":                                "#cloud-config\n",
		"/latest/meta-data/public-keys/2/openssh-key":          "",
		"/latest/meta-data/iam/security-credentials/":          "",
		"/1.0/meta-data/hostname":                              "",
		"/latest/meta-data/host":                               "",
		"/latest/meta-data/public-keys/..%2f..%2fhostname":     "",
		"/latest/meta-data/" + strings.Repeat("hostname", 200): "",
	} {
		resp := r.ask("GET", path, own)
		if got := body(t, resp); want == "" && resp.StatusCode != http.StatusNotFound || want != "" && got != want {
			t.Errorf("%.60s: %s %q; want %q", path, resp.Status, got, want)
		}
	}
	for _, peer := range []string{"10.0.0.250", "127.0.0.1"} {
		if resp := r.ask("GET", "/latest/meta-data/hostname", peer); resp.StatusCode != http.StatusNotFound {
			t.Errorf("from %s: %s", peer, resp.Status)
		}
	}
	if got := body(t, r.ask("GET", "/latest/meta-data/hostname", "10.0.0.20")); got != "m2" {
		t.Errorf("by a fixed address that has no record yet: %q", got)
	}
	unknown := r.dora(t, unknownMAC).Address.String()
	if resp := r.ask("GET", "/latest/meta-data/hostname", unknown); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown machine: %s", resp.Status)
	}
}

func TestPhoneHome(t *testing.T) {
	r := newFixture(t)
	sign := func(p auth.Purpose, expires time.Duration) string {
		token, err := r.keys.SignBoot(auth.BootToken{Purpose: p, Machine: "m1", MAC: knownMAC, Epoch: 7,
			Expires: time.Now().Add(expires)})
		must(t, err)
		return "/phone-home/" + token
	}
	good := sign(auth.PurposePhoneHome, time.Hour)
	for _, c := range []struct {
		path   string
		refuse error
		status int
	}{
		{good, nil, http.StatusOK},
		{good, trivet.ErrFenced, http.StatusConflict},
		{good, fmt.Errorf("write: %w", trivet.ErrUnavailable), http.StatusServiceUnavailable},
		{good + "x", nil, http.StatusUnauthorized},
		{sign(auth.PurposeBoot, time.Hour), nil, http.StatusUnauthorized},
		{sign(auth.PurposePhoneHome, -time.Hour), nil, http.StatusUnauthorized},
		{"/phone-home/", nil, http.StatusNotFound},
	} {
		r.mu.Lock()
		r.refuse = c.refuse
		r.mu.Unlock()
		if resp := r.ask("POST", c.path, "10.0.0.77"); resp.StatusCode != c.status {
			t.Errorf("%.40s, %v: %s %s; want %d", c.path, c.refuse, resp.Status, body(t, resp), c.status)
		}
	}
	if len(r.homed) != 3 || r.homed[0].Machine != "m1" || r.homed[0].Epoch != 7 {
		t.Errorf("reported %+v", r.homed)
	}
	r.mu.Lock()
	r.refuse, r.cloudErrors = nil, nil
	r.mu.Unlock()
	for _, body := range []string{`{"errors": ["a", "b"]}`, `{"errors": "c"}`, "hostname=x", `{"errors": [` +
		strings.Repeat(`"d",`, 70_000), `{"errors": ["` + strings.Repeat("e", 600) + `"` + strings.Repeat(`,"f"`, 20) + `]}`} {
		req := httptest.NewRequest("POST", good, strings.NewReader(body))
		r.ServeHTTP(httptest.NewRecorder(), req)
	}
	want := []string{"a", "b", strings.Repeat("e", 500), "f", "f", "f", "f", "f", "f", "f"}
	if diff := cmp.Diff(want, r.cloudErrors); diff != "" {
		t.Errorf("the errors of cloud-init: %s", diff)
	}
	if resp := r.ask("GET", good, "10.0.0.77"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", resp.Status)
	}
}

func TestScriptWithoutQuorum(t *testing.T) {
	r := newFixture(t)
	r.withPlatform(t)
	r.run(t, trivet.WorkflowBooting)
	own := r.leased(t, knownMAC)
	r.member.Close()
	if script := body(t, r.ask("GET", scriptOf(knownMAC), own)); !strings.Contains(script, "boot vmlinuz") {
		t.Errorf("no installer in\n%s", script)
	}
}

// Every form of a peer's address is parsed.
func TestPeerIsIPv4InIPv6(t *testing.T) {
	r := newFixture(t)
	r.run(t, trivet.WorkflowStarting)
	own := r.dora(t, knownMAC).Address
	peer := "[" + netip.AddrFrom16(own.As16()).String() + "]"
	if got := body(t, r.ask("GET", "/latest/meta-data/hostname", peer)); got != "web1" {
		t.Errorf("from %s: %q", peer, got)
	}
}
