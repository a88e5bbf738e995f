package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// Data is what a template's texts can use. Everything in it is text or a list of texts: a template can loop over what
// a machine has, and over nothing larger.
type Data struct {
	Machine   MachineData
	Provision ProvisionData
	Network   NetworkData
	Params    map[string]string
}

// MachineData is the machine as templates see it.
type MachineData struct {
	Name, Arch, Rack, Vendor, Product, Serial, UUID string
	Labels                                          map[string]string
	MACs                                            []string
}

// ProvisionData is the provision as templates see it.
type ProvisionData struct{ Name, Hostname string }

// NetworkData is the boot port's network as templates see it.
type NetworkData struct {
	Name, Address, CIDR, Gateway, Domain string
	DNS                                  []string
	// Config is the network of the installed system, of the machine's interfaces or its boot port: cloud-init's
	// network-config, version 2, as JSON.
	Config string
}

// MaxText bounds one rendered text, in bytes.
const MaxText = 128 << 10

var errTooLong = fmt.Errorf("%w: the text grows beyond %d bytes", trivet.ErrTooLarge, MaxText)

// Render returns a template's actions for one machine. The template is not changed.
func Render(t *trivet.Template, data Data) ([]trivet.Action, error) {
	params, err := parameters(t, data.Params)
	if err != nil {
		return nil, err
	}
	data.Params = params
	left := &budget{left: MaxWork}
	return eachText(t, func(field, text string) (string, error) { return renderText(field, text, data, left) })
}

// parameters returns the provision's values, and the defaults of those that it leaves out.
func parameters(t *trivet.Template, given map[string]string) (map[string]string, error) {
	params, known := map[string]string{}, map[string]bool{}
	var errs []error
	for _, p := range t.Spec.Parameters {
		value, ok := given[p.Name]
		known[p.Name] = true
		switch {
		case ok:
			params[p.Name] = value
		case p.Default != nil:
			params[p.Name] = *p.Default
		default:
			errs = append(errs, &trivet.FieldError{Field: "spec.parameters." + p.Name,
				Problem: fmt.Sprintf("is missing; template %s requires it", t.Name)})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !known[name] {
			errs = append(errs, &trivet.FieldError{Field: "spec.parameters." + name,
				Problem: "is not a parameter of template " + t.Name + suggestParameter(name, known)})
		}
	}
	return params, errors.Join(errs...)
}

func suggestParameter(name string, known map[string]bool) string {
	if len(known) == 0 {
		return "; it has none: they are in its spec.parameters"
	}
	return apitypes.Suggest(name, known)
}

// CheckParameters returns an error if a provision's values are not those of the template's parameters.
func CheckParameters(t *trivet.Template, given map[string]string) error {
	_, err := parameters(t, given)
	return err
}

// NamedImage is an image that an action of a template names.
type NamedImage struct {
	Name   string
	Action int
}

// NamedImages returns the images that the actions name, as far as the parameters decide that, not the machine.
func NamedImages(t *trivet.Template, given map[string]string) (named []NamedImage) {
	params, err := parameters(t, given)
	if err != nil {
		return nil
	}
	left := &budget{left: MaxWork}
	for i, a := range t.Spec.Actions {
		name, ok := a.With["image"].(string)
		if !ok || slices.ContainsFunc([]string{".Machine", ".Network", ".Provision"},
			func(fact string) bool { return strings.Contains(name, fact) }) {
			continue
		}
		name, err := renderText("image", name, Data{Params: params}, left)
		if err == nil && name != "" {
			named = append(named, NamedImage{name, i})
		}
	}
	return named
}

// eachText rebuilds the actions with every text of their arguments replaced by the result of replace.
func eachText(t *trivet.Template, replace func(field, text string) (string, error)) ([]trivet.Action, error) {
	actions := make([]trivet.Action, len(t.Spec.Actions))
	var errs []error
	for i, a := range t.Spec.Actions {
		with, err := mapTexts(fmt.Sprintf("spec.actions[%d].with", i), a.With, 0, replace)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.With, _ = with.(map[string]any)
		actions[i] = a
	}
	return actions, errors.Join(errs...)
}

const maxDepth = 16

func mapTexts(field string, v any, depth int, replace func(field, text string) (string, error)) (any, error) {
	if depth > maxDepth {
		return nil, &trivet.FieldError{Field: field, Problem: "is nested too deep"}
	}
	switch v := v.(type) {
	case string:
		return replace(field, v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = mapTexts(fmt.Sprintf("%s[%d]", field, i), v[i], depth+1, replace); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			var err error
			if out[key], err = mapTexts(field+"."+key, v[key], depth+1, replace); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return v, nil
	}
}

func renderText(field, text string, data Data, left *budget) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	parsed, err := parseText(field, text, left)
	if err != nil {
		return "", err
	}
	require(parsed)
	out := bounded{budget: left}
	if err := parsed.Execute(&out, data); err != nil {
		return "", &trivet.FieldError{Field: field, Problem: plain(field, err)}
	}
	return out.String(), nil
}

// bounded refuses to grow beyond MaxText, which ends a template that only writes.
type bounded struct {
	bytes.Buffer
	*budget
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > MaxText {
		return 0, errTooLong
	}
	if err := b.spend(len(p)); err != nil {
		return 0, err
	}
	return b.Buffer.Write(p)
}

// plain returns a template's error in the form that follows a field's name.
func plain(field string, err error) string {
	for _, own := range []error{errTooLong, errTooMuch} {
		if errors.Is(err, own) {
			return own.Error()
		}
	}
	if empty, ok := asEmpty(err); ok {
		return empty.Error()
	}
	text, ours := strings.CutPrefix(err.Error(), "template: "+field+":")
	if !ours {
		return text
	}
	if m := noFunction.FindStringSubmatch(text); m != nil {
		text += apitypes.Suggest(m[1], callable)
	}
	return "is wrong at line " + strings.Replace(text, fmt.Sprintf("executing %q ", field), "", 1)
}

var noFunction = regexp.MustCompile(`function "([A-Za-z0-9_]+)" not defined$`)
