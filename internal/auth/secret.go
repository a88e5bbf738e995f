package auth

import (
	"fmt"
	"io"
	"log/slog"
)

const hidden = "[hidden]"

// Secret is a text that does not show itself: not in logs, not in errors and formatted text of any verb, not in JSON or
// YAML. It is read from JSON as a plain string. Reveal gives the text, and is what to look for in a review.
type Secret string

// Reveal gives the text itself.
func (s Secret) Reveal() string { return string(s) }

// String gives a placeholder.
func (s Secret) String() string { return hidden }

// Format gives a placeholder for every verb; without it %d would show the text.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, hidden) }

// LogValue gives a placeholder to slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText gives a placeholder to JSON, YAML and the rest.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
