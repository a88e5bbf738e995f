package runlog

import "testing"

// A name in the folder is read as what it was made of, or not at all.
func FuzzParseName(f *testing.F) {
	for _, name := range []string{"image.1.log", "a-b.1000.log", ".1.log", "a..log", "a.1", "a.-1.log", "a.01.log", "a.9999999999999999999.log", "../a.1.log"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		action, try, ok := parseName(name)
		if !ok {
			return
		}
		made, err := fileName("w", action, try)
		if err != nil || made != "w/"+name {
			t.Errorf("%q was read as %q, %d, which makes %q, %v", name, action, try, made, err)
		}
	})
}
