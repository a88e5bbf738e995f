package server

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// What anybody on the network may answer comes to a terminal, in a command to run, only where it is the URL of an API.
func TestOnlyURLsOfANeighbourAreShown(t *testing.T) {
	good := []string{"https://10.0.0.1:7480", "https://[fd00::1]:7480", "https://head-0.example.com:443"}
	bad := []string{"https://10.0.0.1:7480\x1b[2J", "https://x:1;reboot", "https://$(reboot):1", "http://10.0.0.1:7480", "https://10.0.0.1",
		"https://a@b:1", "https://b:1/x", "https://b:1?x", "https://[fe80::1%25x]:1", "https://b:1\n", "--new-cluster", ""}
	text, err := json.Marshal(neighbour{Cluster: "c\x1b", Head: "h\x1b", API: slices.Concat(bad, good)})
	if err != nil {
		t.Fatal(err)
	}
	n, err := parseNeighbour(text)
	if err != nil || !slices.Equal(n.API, good) {
		t.Errorf("%q, %v", n.API, err)
	}
	said := n.refusal().Error()
	if !strings.Contains(said, "--join "+strings.Join(good, ",")+" --token TOKEN") || strings.ContainsFunc(said, unicode.IsControl) {
		t.Errorf("%q", said)
	}
	if said := (&neighbour{}).refusal().Error(); !strings.Contains(said, "--join URL --token TOKEN") {
		t.Errorf("%q", said)
	}
}

func FuzzNeighbour(f *testing.F) {
	f.Add([]byte(`{"cluster":"c","head":"head0","api":["https://10.0.0.1:7480"]}`))
	f.Add([]byte(`{"api":["https://10.0.0.1:7480\u001b[2J",""]}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseNeighbour(text)
		if err != nil {
			return
		}
		if said := n.refusal().Error(); strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q", said)
		}
	})
}
