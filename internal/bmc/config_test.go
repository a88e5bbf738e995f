package bmc

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestConfigDoesNotShowThePassword(t *testing.T) {
	cfg := Config{Protocol: IPMI, Address: "10.0.0.9", User: "root", Password: "hunter2"}
	var b strings.Builder
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&b, format+"\n", cfg)
		fmt.Fprintf(&b, format+"\n", &cfg)
		fmt.Fprintf(&b, format+"\n", []any{cfg})
	}
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "cfg", cfg)
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "cfg", cfg, "in", map[string]any{"a": &cfg})
	j, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if text := b.String() + string(j); strings.Contains(text, "hunter2") ||
		!strings.Contains(text, "ipmi://root@10.0.0.9") {
		t.Error(text)
	}
}
