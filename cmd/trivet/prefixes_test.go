package main

import (
	"net/netip"
	"testing"
)

func TestPrefixes(t *testing.T) {
	var list []netip.Prefix
	flag := &prefixes{&list}
	for _, text := range []string{"10.0.0.5,10.1.2.3/16", "2001:db8::1"} {
		if err := flag.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := flag.String(), "10.0.0.5/32,10.1.0.0/16,2001:db8::1/128"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, text := range []string{"", "10.0.0.5,", "balancer", "10.0.0.0/33"} {
		if flag.Set(text) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// A list from a file replaces what there was.
func TestPrefixesOfAList(t *testing.T) {
	var list []netip.Prefix
	flag := &prefixes{&list}
	if err := flag.Replace([]string{"10.0.0.5", "10.1.0.0/16"}); err != nil || flag.String() != "10.0.0.5/32,10.1.0.0/16" {
		t.Errorf("%s, %v", flag, err)
	}
	if err := flag.Replace([]string{"10.0.0.6"}); err != nil || flag.String() != "10.0.0.6/32" {
		t.Errorf("%s, %v", flag, err)
	}
	if flag.Replace([]string{"10.0.0.7", "balancer"}) == nil {
		t.Error("a name is accepted")
	}
}
