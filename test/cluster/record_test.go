package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestRecordTotals(t *testing.T) {
	page := filepath.Join(t.TempDir(), "chaos.md")
	h := sound()
	h.Faults = []fault{{Kind: "kill the leader", What: "h0 ", From: 2 * ms, To: 9 * ms},
		{Kind: "kill two", What: "h1 h2 "}}
	h.Ops = append(h.Ops, op{Key: pulseKey, Outcome: done, Return: ms},
		op{Key: pulseKey, Outcome: done, Return: 8 * ms})
	h.Took = time.Minute
	for _, wrong := range [][]error{nil, {ErrRunFailed, errors.New("one\nand its details")}} {
		if err := addToRecord(page, h, wrong); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Rounds, time | 2, 2m0s |", "| Rounds with a violation | 1 |", "| Heads killed by kill -9 | 6 |",
		"| Fault: kill two | 2 |",
		"p50 6 ms, p99 6 ms, max 6 ms", `"violations":["a workflow failed","one"]`,
		"| Rounds with: a workflow failed | 1 |", "| Rounds with: an acknowledged write is lost | 0 |",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q:\n%s", want, text)
		}
	}
}
