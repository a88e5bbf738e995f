package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

// mask is shown instead of a stored value. Written back, it means the stored value.
const mask = trivet.Sealed + "hidden"

// admitSecret seals new values. A value equal to the stored one keeps its sealed form, so that applying a file
// again changes nothing.
func (h *Handler) admitSecret(c *change, old, next *trivet.Secret) error {
	if next == nil {
		return nil
	}
	if err := c.keepKeys(old, next); err != nil {
		return err
	}
	active, err := h.Fleet.SealKey(c.tx)
	if err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(next.Spec.Data)) {
		value, stored := next.Spec.Data[key], ""
		if old != nil {
			stored = old.Spec.Data[key]
		}
		sealed, err := h.sealed(auth.FieldRef{Kind: "Secret", Name: next.FullName(), Field: key}, value, stored,
			active)
		if err != nil {
			return err
		}
		next.Spec.Data[key] = sealed
	}
	return nil
}

// needKeys refuses a secret without the keys that a BMC needs. field names the secret.
func needKeys(field, name string, s *trivet.SecretSpec) error {
	for _, key := range []string{trivet.SecretUser, trivet.SecretPassword} {
		if _, ok := s.Data[key]; !ok {
			return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("names secret %s, which has no key %s in "+
				"spec.data; a BMC needs the keys %s and %s", name, key, trivet.SecretUser, trivet.SecretPassword)}
		}
	}
	return nil
}

// keepKeys refuses to remove a key that a BMC needs from the secret of one.
func (c *change) keepKeys(old, next *trivet.Secret) error {
	if old == nil || needKeys("", "", &old.Spec) != nil || needKeys("", "", &next.Spec) == nil {
		return nil
	}
	for _, r := range c.tx.Referrers(old) {
		if r.Field == "spec.bmc.secret" {
			return &trivet.FieldError{Field: "spec.data", Problem: fmt.Sprintf("lacks %s or %s, and %s %s has it for its BMC; "+
				"write both", trivet.SecretUser, trivet.SecretPassword, strings.ToLower(string(r.From)),
				r.Record.Header().ShortName())}
		}
	}
	return nil
}

// sealed returns the sealed form of a value, with the key of an ID.
func (h *Handler) sealed(at auth.FieldRef, value, stored, key string) (string, error) {
	switch {
	case stored != "" && (value == mask || value == stored):
		return stored, nil
	case strings.HasPrefix(value, trivet.Sealed):
		return "", &trivet.FieldError{Field: "spec.data." + at.Field,
			Problem: "is the mask of a hidden value; write the value itself"}
	case stored != "":
		if was, err := h.Keys.Sealer.Open(at, stored); err == nil && was.Reveal() == value {
			return stored, nil
		}
	}
	text, err := h.Keys.Sealer.Seal(at, auth.Secret(value), key)
	if err != nil {
		return "", fmt.Errorf("spec.data.%s: %w", at.Field, err)
	}
	return text, nil
}

// shown returns a record's JSON as clients may read it: without the values of secrets and the hashes of tokens.
func shown(kind trivet.Kind, record []byte) json.RawMessage {
	switch kind {
	case "Secret":
		return masked(record, func(spec map[string]any) {
			data, _ := spec["data"].(map[string]any)
			for key := range data {
				data[key] = mask
			}
		})
	case "Token":
		return masked(record, func(spec map[string]any) { spec["hash"] = "hidden" })
	}
	return record
}

func masked(record []byte, hide func(spec map[string]any)) json.RawMessage {
	var fields map[string]any
	if json.Unmarshal(record, &fields) != nil {
		return json.RawMessage("null")
	}
	if spec, ok := fields["spec"].(map[string]any); ok {
		hide(spec)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}
