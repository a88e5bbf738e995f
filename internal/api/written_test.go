package api_test

import (
	"errors"
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

// Values that a template does not have are refused when the provision is written, not when a machine is claimed.
func TestParametersAreCheckedFirst(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	put(h, h.fleet.Templates, &trivet.Template{Meta: trivet.Meta{Project: "shared", Name: "t"},
		Spec: trivet.TemplateSpec{Parameters: []trivet.Parameter{{Name: "image"}, {Name: "disk", Default: new("")}},
			Actions: []trivet.Action{{Name: "a", Use: "image", With: map[string]any{"image": "{{.Params.image}}"}}}}})
	put(h, h.fleet.Images, &trivet.Image{Meta: trivet.Meta{Project: "shared", Name: "debian"},
		Spec: trivet.ImageSpec{Format: "raw", Blob: someBlob}})
	for _, c := range []struct {
		params map[string]string
		want   string
	}{
		{map[string]string{"image": "debian"}, ""},
		{map[string]string{"image": "blue/x", "disk": "/dev/sda"}, "spec.template shared/t uses image blue/x, which does " +
			"not exist; import it first: trivet image import FILE --name x -p blue"},
		{map[string]string{"image": "red/debian"}, `spec.template shared/t: image "red/debian" is in another project`},
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
