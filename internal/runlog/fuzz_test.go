package runlog

import "testing"

// A file name is parsed into the parts that it was built from, or refused.
func FuzzParseName(f *testing.F) {
	for _, name := range []string{"image.1.log", "a-b.1000.log", ".1.log", "a..log", "a.1", "a.-1.log", "a.01.log",
		"a.9999999999999999999.log", "../a.1.log"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		action, attempt, ok := parseName(name)
		if !ok {
			return
		}
		built, err := fileName("w", action, attempt)
		if err != nil || built != "w/"+name {
			t.Errorf("%q was parsed as %q, %d, whose file name is %q, %v", name, action, attempt, built, err)
		}
	})
}
