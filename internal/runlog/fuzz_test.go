package runlog

import "testing"

// A file name is parsed into the parts that it was built from, or refused.
func FuzzParseName(f *testing.F) {
	for _, name := range []string{"image.7.1.log", "a-b.9.1000.log", ".1.1.log", "a..1.log", "a.1.1", "a.1.-1.log",
		"a.1.01.log", "a.9999999999999999999.1.log", "../a.1.1.log", "a.1.log", "a.0.1.log"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		key, ok := parseName(name)
		if !ok {
			return
		}
		built, err := fileName("p/w", key)
		if err != nil || built != "p/w/"+name {
			t.Errorf("%q was parsed as %+v, whose file name is %q, %v", name, key, built, err)
		}
	})
}
