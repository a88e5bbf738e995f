package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/state"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// Each entry is a line of JSON in the file, also after the file was moved away.
func TestAuditFile(t *testing.T) {
	st := storetest.New(t, storetest.NoTables)
	path := filepath.Join(t.TempDir(), "audit.log")
	s := &Server{cfg: Config{Audit: path, Log: slog.New(slog.DiscardHandler)}, store: st}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.exportAudit(ctx) }()
	for range 2 {
		var text []byte
		for len(text) == 0 && t.Context().Err() == nil { // it follows the store in its own time
			if _, err := st.Update(t.Context(), func(tx *store.Tx) error {
				tx.Append(state.AuditStream, []byte(`{"account":"alice","action":"accept","result":"ok"}`))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			text, _ = os.ReadFile(path)
		}
		line, _, whole := strings.Cut(string(text), "\n")
		var e trivet.Audit
		if err := json.Unmarshal([]byte(line), &e); err != nil || !whole || e.ID == "" || e.Account != "alice" {
			t.Errorf("the line is %q, %v", line, err)
		}
		if err := os.Rename(path, path+".1"); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	s.cfg.Audit = filepath.Join(t.TempDir(), "no", "directory")
	if err := s.exportAudit(t.Context()); err == nil || !strings.Contains(err.Error(), "--audit") {
		t.Errorf("a file that cannot be written: %v", err)
	}
}
