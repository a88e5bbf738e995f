package provider

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/trivet-project/trivet"
)

// document is a record as a head sends it, with the fields that this version does not know.
type document struct {
	trivet.Meta
	Spec   map[string]any  `json:"spec"`
	Status json.RawMessage `json:"status"`
}

func parseDocument(raw []byte) (*document, error) {
	d := &document{}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, err
	}
	return d, nil
}

// documentOf returns a record that a write has returned.
func documentOf(r trivet.Record) (*document, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return parseDocument(raw)
}

// statusText returns the status as compact JSON.
func (d *document) statusText() string {
	var out bytes.Buffer
	if json.Compact(&out, d.Status) != nil {
		return "{}"
	}
	return cmp.Or(out.String(), "{}")
}

// written is the part of a record that clients write.
type written struct {
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Spec        map[string]any    `json:"spec"`
}
