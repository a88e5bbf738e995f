package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Any program on the network may answer a probe. Its answer is printed, in a command to run, only where it is the URL
// of an API.
func TestOnlyAPIURLsArePrinted(t *testing.T) {
	good := []string{"https://10.0.0.1:7480", "https://[fd00::1]:7480", "https://head-0.example.com:443"}
	bad := []string{"https://10.0.0.1:7480\x1b[2J", "https://x:1;reboot", "https://$(reboot):1",
		"http://10.0.0.1:7480", "https://10.0.0.1",
		"https://a@b:1", "https://b:1/x", "https://b:1?x", "https://[fe80::1%25x]:1", "https://b:1\n",
		"--new-cluster", ""}
	text, err := json.Marshal(foundCluster{Cluster: "c\x1b", Head: "h\x1b", API: slices.Concat(bad, good)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := parseFound(text)
	if err != nil || !slices.Equal(f.API, good) {
		t.Errorf("%q, %v", f.API, err)
	}
	printed := f.err().Error()
	if !strings.Contains(printed, "--join "+strings.Join(good, ",")+" --token TOKEN") ||
		strings.ContainsFunc(printed, unicode.IsControl) {
		t.Errorf("%q", printed)
	}
	if printed := (&foundCluster{}).err().Error(); !strings.Contains(printed, "--join URL --token TOKEN") {
		t.Errorf("%q", printed)
	}
}

func FuzzFoundCluster(f *testing.F) {
	f.Add([]byte(`{"cluster":"c","head":"head0","api":["https://10.0.0.1:7480"]}`))
	f.Add([]byte(`{"api":["https://10.0.0.1:7480\u001b[2J",""]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseFound(text)
		if err != nil {
			return
		}
		if printed := c.err().Error(); strings.ContainsFunc(printed, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", printed)
		}
	})
}
