package api_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A rule that came later does not apply to what is in the store already: it stays, and the rest can be changed.
func TestLaterRulesSpareWhatIsStored(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	networks := client.Of[trivet.Network](h.client(h.admin))
	span := func(from, to string) trivet.Range {
		return trivet.Range{From: netip.MustParseAddr(from), To: netip.MustParseAddr(to)}
	}
	old := network("lab", "10.0.0.0/24")
	old.Spec.Ranges = []trivet.Range{span("10.0.0.10", "10.0.0.99"), span("10.0.0.50", "10.0.0.150")}
	put(h, h.fleet.Networks, old)
	n, err := networks.Modify(t.Context(), "lab", func(n *trivet.Network) error {
		n.Labels, n.Spec.MTU = map[string]string{"a": "b"}, 9000
		return nil
	})
	if err != nil {
		t.Fatalf("another field of a record that breaks a later rule: %v", err)
	}
	n.Spec.Ranges = append(n.Spec.Ranges, span("10.0.0.140", "10.0.0.160"))
	_, err = networks.Update(t.Context(), n)
	if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), "spec.ranges[2] 10.0.0.140") ||
		strings.Contains(err.Error(), "spec.ranges[1] 10.0.0.50") {
		t.Errorf("one more overlap: %v", err)
	}
	fresh := network("other", "10.0.1.0/24")
	fresh.Spec.Ranges = []trivet.Range{span("10.0.1.10", "10.0.1.99"), span("10.0.1.99", "10.0.1.150")}
	if _, err := networks.Create(t.Context(), fresh); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("a new network: %v", err)
	}
}

// What is spared stays spared where it moves within its list, and is not one more of its kind.
func TestSparedValuesMayMove(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	networks := client.Of[trivet.Network](h.client(h.admin))
	ntp := func(texts ...string) (list []netip.Addr) {
		for _, text := range texts {
			list = append(list, netip.MustParseAddr(text))
		}
		return list
	}
	old := network("lab", "10.0.0.0/24")
	old.Spec.NTP = ntp("fd00::1", "fd00::2")
	put(h, h.fleet.Networks, old)
	for _, c := range []struct {
		what string
		ntp  []netip.Addr
		want string
	}{
		{"one before them", ntp("10.0.0.9", "fd00::1", "fd00::2"), ""},
		{"another one", ntp("fd00::1", "fd00::2", "fd00::3"), "spec.ntp[2] fd00::3 is not an IPv4 address"},
		{"one of them again", ntp("fd00::1", "fd00::2", "fd00::2"), "spec.ntp[2] fd00::2 is not an IPv4 address"},
		{"without the first one", ntp("fd00::2"), ""},
		{"the first one again", ntp("fd00::1", "fd00::2"), "spec.ntp[0] fd00::1 is not an IPv4 address"},
	} {
		_, err := networks.Modify(t.Context(), "lab", func(n *trivet.Network) error {
			n.Spec.NTP = c.ntp
			return nil
		})
		if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want+", which DHCP announces") {
			t.Errorf("%s: %v, want %s", c.what, err, c.want)
		}
	}
}

// Values that a template does not have are refused when the provision is written, not when a machine is claimed.
func TestParametersAreCheckedFirst(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "shared", Name: "t"},
		Spec: trivet.TemplateSpec{Parameters: []trivet.Parameter{{Name: "image"}, {Name: "disk", Default: new("")}},
			Actions: []trivet.Action{{Name: "a", Use: "image", With: map[string]any{"image": "{{.Params.image}}"}}}}})
	put(h, h.fleet.Images, &trivet.Image{Meta: trivet.Meta{Project: "shared", Name: "debian"},
		Spec: trivet.ImageSpec{Format: "raw", Blob: someBlob}})
	put(h, h.fleet.Images, &trivet.Image{Meta: trivet.Meta{Project: "shared", Name: "tree"},
		Spec: trivet.ImageSpec{Format: "tar", Blob: someBlob}})
	must(client.Of[trivet.Machine](h.client(h.admin)).Create(t.Context(), machine("m1", macA)))(t)
	for _, c := range []struct {
		params map[string]string
		want   string
	}{
		{map[string]string{"image": "debian"}, ""},
		{map[string]string{"image": "blue/x", "disk": "/dev/sda"}, "spec.parameters.image names image blue/x, which does " +
			"not exist (trivet get images -p blue); write one that exists, or import it first: trivet image import FILE --name x -p blue"},
		{map[string]string{"image": "red/debian"}, "spec.parameters.image names an image that cannot be used: " +
			`"red/debian" is in another project`},
		{map[string]string{"image": "tree"}, "spec.parameters.image names image shared/tree for action a, which cannot use " +
			"it: invalid: image shared/tree is of format tar; action image requires raw"},
		{nil, "spec.parameters.image is missing; template t requires it"},
		{map[string]string{"image": "debian", "dsk": ""}, "spec.parameters.dsk is not a parameter of template t; did you " +
			"mean disk?"},
	} {
		_, err := client.Of[trivet.Provision](h.client(h.admin)).In("blue").Create(t.Context(), &trivet.Provision{
			Meta: trivet.Meta{Name: "p"},
			Spec: trivet.ProvisionSpec{Template: "shared/t", Machine: "m1", Parameters: c.params}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.params, err, c.want)
		}
	}
}

// A template whose action cannot use an image is refused; the image may also be imported later.
func TestFormatsOfATemplatesImages(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Images, &trivet.Image{Meta: trivet.Meta{Project: "default", Name: "disk"},
		Spec: trivet.ImageSpec{Format: "raw", Blob: someBlob}})
	templates := client.Of[trivet.Template](h.client(h.admin))
	for i, c := range []struct{ use, image, want string }{
		{"image", "disk", ""}, {"archive", "later", ""}, {"archive", "{{.Params.none}}", ""},
		{"archive", "disk", "spec.actions[0].with.image names image disk for action a, which cannot use it: invalid: image " +
			"disk is of format raw; action archive requires tar"},
		{"container", "disk", "action container requires oci"},
		{"archive", "{{.Params.image}}", "action archive requires tar"},
	} {
		_, err := templates.Create(t.Context(), &trivet.Template{Meta: trivet.Meta{Name: fmt.Sprint("t", i)},
			Spec: trivet.TemplateSpec{Parameters: []trivet.Parameter{{Name: "image", Default: new("disk")},
				{Name: "none", Default: new("")}},
				Actions: []trivet.Action{{Name: "a", Use: c.use, With: map[string]any{"image": c.image}}}}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v, want %s", c.use, c.image, err, c.want)
		}
	}
}

// A provision with a count can be scaled whatever became of its template and image: only what it names is checked.
func TestScaleIsNotCheckedAgain(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	readyForMany(h)
	put(h, h.fleet.Templates, template("later", "gone"))
	two := 2
	put(h, h.fleet.Provisions, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: "web"},
		Spec: trivet.ProvisionSpec{Template: "later", Selector: map[string]string{"a": "b"}, Count: &two}})
	provisions := client.Of[trivet.Provision](h.client(h.admin))
	for _, patch := range []string{`{"spec":{"count":1}}`, `{"spec":{"maxInFlight":1}}`} {
		if _, err := provisions.Patch(t.Context(), "web", []byte(patch), 0); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
	for patch, want := range map[string]string{
		`{"spec":{"parameters":{"x":"y"}}}`:                "spec.parameters.x is not a parameter of template later",
		`{"spec":{"template":"t","parameters":{"x":"y"}}}`: "spec.parameters.x is not a parameter of template t",
	} {
		if _, err := provisions.Patch(t.Context(), "web", []byte(patch), 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", patch, err, want)
		}
	}
}

// The addresses of gateway and servers are reserved where Trivet leases addresses; elsewhere they may be machines.
func TestReservedAddresses(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	machines := client.Of[trivet.Machine](h.client(h.admin))
	for i, dhcp := range []string{"", "server", "proxy", "off"} {
		n := network(fmt.Sprint("n", i), fmt.Sprintf("10.0.%d.0/24", i))
		n.Spec.DHCP, n.Spec.Gateway = dhcp, netip.MustParseAddr(fmt.Sprintf("10.0.%d.1", i))
		n.Spec.DNS = []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.%d.2", i))}
		if _, err := client.Of[trivet.Network](h.client(h.admin)).Create(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		reserved := dhcp == "" || dhcp == "server"
		for last, want := range map[int]bool{1: reserved, 2: reserved, 3: false, 255: true} {
			m := machine(fmt.Sprintf("m%d-%d", i, last), fmt.Sprintf("52:54:00:00:%02x:%02x", i, last))
			m.Spec.NICs[0].Address = netip.MustParseAddr(fmt.Sprintf("10.0.%d.%d", i, last))
			if _, err := machines.Create(t.Context(), m); errors.Is(err, trivet.ErrInvalid) != want {
				t.Errorf("dhcp %q, %s: %v", dhcp, m.Spec.NICs[0].Address, err)
			}
		}
	}
}
