package machinelist

import (
	"fmt"
	"strings"

	"github.com/trivet-project/trivet"
)

// object is a record of Kubernetes, with what is read of one of Tinkerbell or Metal3.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Items []any `json:"items"`
}

// group returns the API's group: "tinkerbell.org".
func (o *object) group() string {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return group
}

// maxNested bounds how deeply lists are nested in lists.
const maxNested = 4

// located is an object of a list.
type located struct {
	object
	value any
	place string
}

// objects returns the objects of documents, also those in lists.
func objects(docs []any, within string, depth int) (all []located, err error) {
	if depth > maxNested {
		return nil, fmt.Errorf("%w: lists are nested too deeply", trivet.ErrInvalid)
	}
	for i, value := range docs {
		o := located{value: value, place: fmt.Sprintf("%s %d", within, i+1)}
		if err := decode(value, &o.object); err != nil {
			return nil, fmt.Errorf("%s: %w", o.place, err)
		}
		if o.Items == nil {
			all = append(all, o)
			continue
		}
		below, err := objects(o.Items, o.place+", item", depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, below...)
	}
	return all, nil
}

// readKubernetes returns the machines of Hardware of Tinkerbell, with the BMCs of its Machine records, and of
// BareMetalHosts of Metal3.
func readKubernetes(docs []any, o Options) (all []*Entry, err error) {
	list, err := objects(docs, "document", 0)
	if err != nil {
		return nil, err
	}
	bmcs := map[string]tinkerbellBMC{}
	for _, l := range list {
		if l.group() == "bmc.tinkerbell.org" && l.Kind == "Machine" {
			b := tinkerbellBMC{}
			if err := decode(l.value, &b); err != nil {
				return nil, fmt.Errorf("%s: %w", l.place, err)
			}
			bmcs[l.Metadata.Name] = b
		}
	}
	for _, l := range list {
		e := newEntry(l.place)
		switch {
		case l.group() == "tinkerbell.org" && l.Kind == "Hardware":
			err = fillTinkerbell(e, &l, bmcs, o)
		case l.group() == "metal3.io" && l.Kind == "BareMetalHost":
			err = fillMetal3(e, &l, o)
		case l.group() == "bmc.tinkerbell.org", l.Kind == "Secret" && l.APIVersion == "v1":
			continue
		case l.Kind == "" || l.APIVersion == "":
			err = fmt.Errorf("%w: it has no kind with an apiVersion; what can be read are Hardware of tinkerbell.org, "+
				"BareMetalHost of metal3.io, an export of MAAS, and CSV; records of Trivet are written by: trivet apply -f FILE",
				trivet.ErrInvalid)
		default:
			err = fmt.Errorf("%w: it is %.40q of %.60q; what can be read are Hardware of tinkerbell.org, BareMetalHost of "+
				"metal3.io, an export of MAAS, and CSV", trivet.ErrInvalid, l.Kind, l.APIVersion)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.place, err)
		}
		for key, value := range l.Metadata.Labels {
			e.label(key, value)
		}
		all = append(all, e)
	}
	return all, nil
}
