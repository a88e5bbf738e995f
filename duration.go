package trivet

import (
	"fmt"
	"time"
)

// Duration is a time.Duration whose text form is "90s" or "1h30m".
type Duration time.Duration

// D returns the duration as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String returns the text form, "1h30m0s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns the text form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText parses "90s". It refuses negative durations.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write 30s, 5m or 1h30m", text)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative", text)
	}
	*d = Duration(v)
	return nil
}

// SignedDuration is a duration that may be negative, "-1.5s", as the difference of two clocks.
type SignedDuration time.Duration

// D returns the duration as a time.Duration.
func (d SignedDuration) D() time.Duration { return time.Duration(d) }

// MarshalText returns the text form.
func (d SignedDuration) MarshalText() ([]byte, error) { return []byte(d.D().String()), nil }

// UnmarshalText parses "90s" and "-90s".
func (d *SignedDuration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration; write 30s, -5m or 1h30m", text)
	}
	*d = SignedDuration(v)
	return nil
}
