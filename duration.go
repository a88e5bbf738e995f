package trivet

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that people write as "90s" or "1h30m".
type Duration time.Duration

// D gives the plain duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

// String writes it as people do: "1h30m0s".
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes what UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads "90s". Negative durations are refused: nothing in Trivet lasts less than no time.
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
