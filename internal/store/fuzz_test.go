package store

import (
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// A record's key is read as what it was made of, is never one of the store's own, and a foreign key is no record.
func FuzzKeys(f *testing.F) {
	for _, seed := range [][2]string{
		{"Machine", "m1"}, {"Address", "10.0.0.7"}, {"Address", "fd00::7"}, {"-guard", "head0"}, {"", ""}, {"a/b", "c"},
		{"Machine", "a/b"},
		{"Machine", "\x00"}, {"Machine", "../x"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, kind, name string) {
		part, got, ok := splitKey(recordKey(kindPart(trivet.Kind(kind)), name))
		if !strings.Contains(kind, "/") && (!ok || part != kindPart(trivet.Kind(kind)) || got != name) {
			t.Errorf("the key of %q %q is read as %q %q", kind, name, part, got)
		}
		if trivet.ValidateName(name) == nil && isInternal(name) {
			t.Errorf("%q is a name, and the store's own", name)
		}
		if _, _, ok := splitKey(kind); ok && !strings.HasPrefix(kind, prefix) {
			t.Errorf("%q is read as a key", kind)
		}
		// What is under one key of an index is under no other.
		one, other := listPath("k", "i", kind), listPath("k", "i", name)
		prefixes := strings.HasPrefix(one, other) || strings.HasPrefix(other, one)
		if kind != name && !strings.ContainsAny(kind+name, "\x00\uFFFD") && prefixes {
			t.Errorf("index keys %q and %q are mixed up", kind, name)
		}
	})
}
