package provider

import (
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/trivet-project/trivet"
)

// setExpires sets the time of expiry; one that is equal stays as it is written.
func (m *tokenModel) setExpires(at time.Time) {
	text := ""
	if !at.IsZero() {
		text = at.UTC().Format(time.RFC3339Nano)
	}
	if !sameTime(m.Expires, types.StringValue(text)) {
		m.Expires = types.StringValue(text)
	}
}

// parseTime returns the zero time of a value that is not set, or empty.
func parseTime(value types.String) (time.Time, error) {
	if value.ValueString() == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, value.ValueString())
	if err != nil {
		return at, fmt.Errorf("%w: %q is not a time; write one such as 2030-01-31T00:00:00Z", trivet.ErrInvalid,
			value.ValueString())
	}
	return at, nil
}

// sameTime reports whether two values are the same time, both known.
func sameTime(a, b types.String) bool {
	if a.IsNull() || a.IsUnknown() || b.IsNull() || b.IsUnknown() {
		return false
	}
	x, errX := parseTime(a)
	y, errY := parseTime(b)
	return errX == nil && errY == nil && x.Equal(y)
}
