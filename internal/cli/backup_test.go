package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/recovery"
)

// Only who types the end of the key, at one of three attempts, has stored it.
func TestConfirmKey(t *testing.T) {
	key, _, err := recovery.NewKey("c1", "sha256:x", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.TrimSpace(key.Reveal())
	end := text[len(text)-typedSize:]
	for typed, ok := range map[string]bool{
		end + "\n": true, strings.ToLower(end) + "\n": true, " " + end + " \n": true, "no\nno\n" + end + "\n": true,
		"": false, "\n\n\n": false, end[1:] + "\n": false, "no\nno\nno\n" + end + "\n": false,
	} {
		var prompts bytes.Buffer
		err := newApp(Env{Out: &prompts, Err: &prompts}).confirmKey(strings.NewReader(typed), key)
		if (err == nil) != ok {
			t.Errorf("typed %q: %v", typed, err)
		}
		if strings.Contains(prompts.String(), end) {
			t.Errorf("the prompt has the key: %s", &prompts)
		}
	}
}
