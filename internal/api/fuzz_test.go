package api

import (
	"errors"
	"net/http/httptest"
	"testing"

	"github.com/trivet-project/trivet"
)

// Any query is either a selector or an ErrInvalid, and a selector can be applied to any record.
func FuzzSelector(f *testing.F) {
	for _, text := range []string{"rack=r1,env!=test", "a=", "=a", ",", "a!=b!=c", "spec.nics.mac=52:54:00:00:00:01",
		"spec.nics[0].mac=x", "\x00=\xff"} {
		f.Add(text, text)
	}
	f.Fuzz(func(t *testing.T, labels, fields string) {
		for _, info := range trivet.Kinds {
			s, err := newSelector(labels, fields, info)
			if err != nil {
				if !errors.Is(err, trivet.ErrInvalid) {
					t.Fatalf("%v is no ErrInvalid", err)
				}
				continue
			}
			s.matches(info.New())
		}
	})
}

// Any position from which a list or watch is to continue is either valid or an ErrInvalid.
func FuzzPosition(f *testing.F) {
	f.Add(position{7, "m1"}.String(), "kinds=machines&from=7")
	f.Add("e30", "names=,a,&labels=a%3Db")
	f.Add("!", "from=-1")
	f.Fuzz(func(t *testing.T, text, query string) {
		p, err := parsePosition(text)
		if err != nil && !errors.Is(err, trivet.ErrInvalid) {
			t.Fatalf("%v is no ErrInvalid", err)
		}
		if again, err2 := parsePosition(p.String()); err == nil && (err2 != nil || again != p) {
			t.Fatalf("%+v, written and read, is %+v, %v", p, again, err2)
		}
		r := httptest.NewRequest("GET", "/v1/watch", nil)
		r.URL.RawQuery = query
		_, _, _ = parseWatch(r) // an unknown kind has its own error
	})
}
