package cli

import (
	"testing"

	"github.com/trivet-project/trivet"
)

func TestPlaceText(t *testing.T) {
	for want, p := range map[string]trivet.QueuePlace{
		"1st of 1":               {Position: 1, Of: 1},
		"2nd of 12":              {Position: 2, Of: 12},
		"3rd of 12":              {Position: 3, Of: 12},
		"11th of 12":             {Position: 11, Of: 12},
		"12th of 12":             {Position: 12, Of: 12},
		"113th of 200":           {Position: 113, Of: 200},
		"122nd of over 10000":    {Position: 122, Of: 10000, More: true},
		"behind the first 10000": {Of: 10000, More: true},
	} {
		if got := placeText(&p); got != want {
			t.Errorf("%+v: %q, want %q", p, got, want)
		}
	}
}
