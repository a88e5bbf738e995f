package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/trivet-project/trivet/internal/auth"
)

// newLogger returns the log of a head. What it writes has no credentials, at any level: see redact.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level is %q; must be debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l, ReplaceAttr: redact}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log-format is %q; must be text or json", format)
}

// redact hides credentials in the value of an attribute, or in the message. Errors, requests and paths hold what
// clients sent, and a client may send a token anywhere.
func redact(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString, slog.KindAny:
		text := a.Value.String()
		if b, ok := a.Value.Any().([]byte); ok {
			text = string(b)
		}
		if auth.Redact(text) != text {
			a.Value = slog.StringValue(auth.Redact(text))
		}
	}
	return a
}
