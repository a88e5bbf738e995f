package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/apitypes"
	"github.com/trivet-project/trivet/internal/ownership"
)

// applyOptions are how records are applied.
type applyOptions struct {
	dryRun bool
	client.ApplyOptions
	force bool // overwrite fields of others
	prune bool
	yes   bool
}

// ownerFlags adds the flags about what others have changed.
func (o *applyOptions) ownerFlags(c *cobra.Command) {
	c.Flags().StringVar(&o.Manager, "field-manager", ownership.Default,
		"name of the set of files, whose fields are distinguished from those of other sets")
	c.Flags().StringVar(&o.Former, "former-manager", "",
		"name that the set of files had before, such as apply where it had none: what it applied is of --field-manager now")
	c.Flags().BoolVar(&o.force, "force-conflicts", false, "overwrite fields that others have changed or applied")
}

func (o *applyOptions) check() error {
	if err := ownership.ValidateManager(o.Manager); err != nil {
		return fmt.Errorf("--field-manager: %w", err)
	}
	if o.prune && o.Manager == ownership.Default {
		return &trivet.Error{Op: "apply", Hint: "name the set of files, always the same: --field-manager NAME",
			Err: fmt.Errorf("%w: --prune would delete what any other apply has created", trivet.ErrInvalid)}
	}
	return nil
}

// note is what follows each line of a dry run.
func (o *applyOptions) note() string {
	if o.dryRun {
		return " (dry run)"
	}
	return ""
}

// applyOne applies a record and returns what that did.
func applyOne(ctx context.Context, kind client.Kind, m *manifest, o applyOptions) (done applied, err error) {
	kind, name := kind.DryRun(o.dryRun), m.record.Header().Name
	if done.old, err = kind.Get(ctx, name); err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return applied{}, err
	}
	replaces := done.old != nil && m.record.Header().Generation != 0
	if !replaces {
		done.now, err = kind.Force(o.force).Apply(ctx, name, o.ApplyOptions, m.body)
	}
	if replaces || lacksApply(err) {
		done.now, err = replaceOne(ctx, kind, done.old, m)
	}
	done.whole = err == nil && !replaces && done.old != nil && done.now.Header().Managed == nil && m.hasFields()
	switch {
	case err != nil:
		return applied{}, err
	case done.old == nil:
		done.verb = "created"
	case unchanged(done.old, done.now):
		done.verb = "unchanged"
	default:
		done.verb = "configured"
	}
	return done, nil
}

// hasFields reports whether the record has anything that people write; what is zero is of no manager.
func (m *manifest) hasFields() bool {
	var object map[string]any
	if text, err := json.Marshal(m.record); err != nil || json.Unmarshal(text, &object) != nil {
		return false
	}
	return slices.ContainsFunc(ownership.Parts, func(part string) bool {
		fields, _ := object[part].(map[string]any)
		return len(fields) > 0
	})
}

// lacksApply reports whether a head of an earlier release, which cannot apply, has refused the request.
func lacksApply(err error) bool {
	return slices.ContainsFunc(apitypes.FieldErrors(err), func(e *trivet.FieldError) bool {
		return e.Field == "Content-Type"
	})
}

// replaceOne creates or replaces a record.
func replaceOne(ctx context.Context, kind client.Kind, old trivet.Record, m *manifest) (trivet.Record, error) {
	name := m.record.Header().Name
	if old == nil {
		return kind.CreateRaw(ctx, name, m.body)
	}
	return kind.UpdateRaw(ctx, name, m.body)
}

// unchanged reports whether a write changed nothing that people write. The generation counts the changes of spec.
func unchanged(old, now trivet.Record) bool {
	a, b := old.Header(), now.Header()
	return a.UID == b.UID && a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations)
}

// withoutManaged returns records without their managers, unless these are to be shown.
func (a *app) withoutManaged(raw []json.RawMessage) []json.RawMessage {
	if a.showManaged {
		return raw
	}
	all := slices.Clone(raw)
	for i, r := range all {
		all[i] = without(without(r, "managed"), "creator")
	}
	return all
}

// without returns a JSON object without a property, and with the others as they are.
func without(object json.RawMessage, name string) json.RawMessage {
	if !bytes.Contains(object, []byte(`"`+name+`"`)) {
		return object
	}
	dec := json.NewDecoder(bytes.NewReader(object))
	if start, err := dec.Token(); err != nil || start != json.Delim('{') {
		return object
	}
	for {
		from := dec.InputOffset() // after what is before the property, which may be a comma
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || key == json.Delim('}') || dec.Decode(&value) != nil {
			return object
		}
		if key == name {
			return cut(object, int(from), int(dec.InputOffset()))
		}
	}
}

// cut removes a property, and the comma that separates it.
func cut(object json.RawMessage, from, to int) json.RawMessage {
	rest := object[to:]
	if object[from] != ',' {
		rest = bytes.TrimPrefix(rest, []byte(","))
	}
	return slices.Concat(object[:from], rest)
}
