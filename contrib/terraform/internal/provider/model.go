package provider

import (
	"context"
	"maps"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
)

// model is the attributes of a record. Those that its kind does not have are null.
type model struct {
	project, name, spec, uid, status types.String
	labels, annotations, data        types.Map
	revision, generation             types.Int64
	wait                             types.Bool
	timeouts                         timeouts.Value
}

// source is a configuration, a plan or a state.
type source interface {
	GetAttribute(ctx context.Context, at path.Path, into any) diag.Diagnostics
}

// attributes returns the attributes that a kind has.
func (m *model) attributes(k *kind) map[string]any {
	all := map[string]any{"name": &m.name, "spec": &m.spec, "uid": &m.uid, "labels": &m.labels,
		"annotations": &m.annotations, "revision": &m.revision, "generation": &m.generation,
		"timeouts": &m.timeouts}
	if k.isInProject() {
		all["project"] = &m.project
	}
	if k.hasStatus() {
		all["status"] = &m.status
	}
	if k.secretData {
		all["data"] = &m.data
	}
	if k.runs {
		all["wait"] = &m.wait
	}
	return all
}

func load(ctx context.Context, k *kind, from source) (m *model, diags diag.Diagnostics) {
	m = &model{}
	for name, into := range m.attributes(k) {
		diags.Append(from.GetAttribute(ctx, path.Root(name), into)...)
	}
	return m, diags
}

// save writes the attributes to the state. The values of secrets are not written.
func (m *model) save(ctx context.Context, k *kind, to *tfsdk.State) (diags diag.Diagnostics) {
	m.data = types.MapNull(types.StringType)
	for name, value := range m.attributes(k) {
		diags.Append(to.SetAttribute(ctx, path.Root(name), value)...)
	}
	return diags
}

// imported reports whether only the name is known.
func (m *model) imported() bool { return m.spec.IsNull() }

// full returns the record's name in messages.
func (m *model) full() string {
	return trivet.ShortName(trivet.FullName(m.project.ValueString(), m.name.ValueString()))
}

// adopt copies what a head has written, without what the configuration sets.
func (m *model) adopt(d *document) {
	m.uid, m.status = types.StringValue(d.UID), types.StringValue(d.statusText())
	m.revision, m.generation = types.Int64Value(d.Revision), types.Int64Value(d.Generation)
}

// refresh copies a record as it is now: of labels, annotations and spec what the state has, or all where it was
// imported.
func (m *model) refresh(k *kind, d *document) error {
	m.adopt(d)
	if m.imported() {
		spec := maps.Clone(d.Spec)
		if k.secretData {
			delete(spec, "data")
		}
		m.spec = types.StringValue(specText(spec))
		m.labels, m.annotations = stringsMap(d.Labels), stringsMap(d.Annotations)
		return nil
	}
	set, err := readSpec(k, m.spec.ValueString())
	if err != nil {
		return err
	}
	if has := restrictObject(d.Spec, set); !isEqual(has, set) {
		m.spec = types.StringValue(specText(has))
	}
	m.labels = refreshStrings(m.labels, d.Labels)
	m.annotations = refreshStrings(m.annotations, d.Annotations)
	return nil
}

// refreshStrings returns what a record has of the keys of a map; null stays null.
func refreshStrings(set types.Map, has map[string]string) types.Map {
	if set.IsNull() {
		return set
	}
	return mapValue(restrictStrings(has, stringsOf(set)))
}

// stringsOf returns the elements of a map that is known.
func stringsOf(m types.Map) map[string]string {
	out := map[string]string{}
	for key, value := range m.Elements() {
		if s, ok := value.(types.String); ok && !s.IsNull() {
			out[key] = s.ValueString()
		}
	}
	return out
}

// stringsMap returns a map; null where it is empty.
func stringsMap(m map[string]string) types.Map {
	if len(m) == 0 {
		return types.MapNull(types.StringType)
	}
	return mapValue(m)
}

func mapValue(m map[string]string) types.Map {
	elements := map[string]attr.Value{}
	for key, value := range m {
		elements[key] = types.StringValue(value)
	}
	return types.MapValueMust(types.StringType, elements)
}
