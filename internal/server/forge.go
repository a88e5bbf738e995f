package server

import (
	"context"
	"os"
	"strings"
	"time"
)

// forge does what a witness could that was taken over, for a test: it proposes the writes in the file DATA-DIR/forge.
// Each line has the key, and the value or, after "=", the key whose value it is. It runs only where
// [faultinject.WitnessForges] is set.
func (s *Server) forge(ctx context.Context) {
	for text := []byte(nil); len(text) == 0; time.Sleep(100 * time.Millisecond) {
		text, _ = os.ReadFile(s.cfg.path("forge"))
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if from, ok := strings.CutPrefix(value, "="); ok {
				resp, err := s.member.Client().Get(ctx, from)
				if err != nil || len(resp.Kvs) == 0 {
					s.cfg.Log.Error("nothing to copy", "key", from, "error", err)
					continue
				}
				value = string(resp.Kvs[0].Value)
			}
			_, err := s.member.Client().Put(ctx, key, value)
			s.cfg.Log.Info("forged", "key", key, "error", err)
		}
	}
}
