package dhcp

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The table is the one of Kea's high availability, so that both choose the same server.
func TestLoadTableMatchesKea(t *testing.T) {
	found, err := filepath.Glob("/usr/lib/*/kea/hooks/libdhcp_ha.so")
	if err != nil || len(found) == 0 {
		t.Fatalf("Kea is missing (apt-get install kea-dhcp4-server): %v", err)
	}
	kea, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(kea, loadTable[:]) {
		t.Fatal("Kea has another table")
	}
}

// Computed from RFC 3074's code: start with the length, process the bytes from the last to the first.
func TestLoadHash(t *testing.T) {
	for id, want := range map[string]byte{"": 0, "\x00": 175, "\x01": 251, "\x01\x02": 170} {
		if got := LoadHash([]byte(id)); got != want {
			t.Errorf("%x: %d, want %d", id, got, want)
		}
	}
	seen := map[byte]bool{}
	for _, v := range loadTable {
		seen[v] = true
	}
	if len(seen) != 256 {
		t.Fatalf("%d values in the table", len(seen))
	}
}

// The identifier takes precedence over the hardware address.
func TestRequestLoadHash(t *testing.T) {
	if r := request(t, Discover, nil); r.LoadHash() != LoadHash(testMAC) {
		t.Fatal("not the hardware address's")
	}
	if r := request(t, Discover, nil, Option{OptClientID, []byte{1, 2}}); r.LoadHash() != 170 {
		t.Fatal("not the client identifier's")
	}
}
