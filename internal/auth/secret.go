package auth

import (
	"fmt"
	"io"
	"log/slog"
)

const hidden = "[hidden]"

// Secret is a string that prints a placeholder in logs, errors, formatted text of any verb, JSON and YAML. It is
// decoded from JSON as a plain string. Reveal returns the string; reviews should check its callers.
type Secret string

// Reveal returns the secret.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder.
func (s Secret) String() string { return hidden }

// Format returns a placeholder for every verb; without it %d would show the text.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, hidden) }

// LogValue returns a placeholder to slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(hidden) }

// MarshalText returns a placeholder to JSON, YAML and the rest.
func (s Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }
