package trivet_test

import (
	"testing"

	"github.com/trivet-project/trivet"
)

// A parsed duration is not negative, and is the same after a round trip.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"90s", "1h30m", "", "-1s", "0", "1e9h", "2562047h47m16.854775807s", ".5ms"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var d, again trivet.Duration
		if d.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(d.String())); err != nil || again != d || d < 0 {
			t.Fatalf("%q is %s, then %s, %v", text, d, again, err)
		}
	})
}

// An accepted name is not a path, and a MAC address has one canonical form.
func FuzzNames(f *testing.F) {
	for _, text := range []string{"m1", "..", "a/b", "a\x00", "52-54-00-AB-CD-EF", "10.0.0.7", "fe80::1", "a~b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if trivet.ValidateName(text) == nil {
			for _, c := range text {
				if c < '!' || c > '~' || c == '/' || c == '\\' {
					t.Fatalf("%q is taken as a name", text)
				}
			}
			if text == "." || text == ".." {
				t.Fatalf("%q is taken as a name", text)
			}
		}
		mac, err := trivet.CanonicalMAC(text)
		if err != nil {
			return
		}
		if again, err := trivet.CanonicalMAC(mac); err != nil || again != mac {
			t.Fatalf("%q is %q, then %q, %v", text, mac, again, err)
		}
	})
}
