package main

import "testing"

func TestQuota(t *testing.T) {
	for text, want := range map[string]quota{"0": 0, "1KiB": 1 << 10} {
		q := quota(7)
		if err := q.UnmarshalText([]byte(text)); err != nil || q != want {
			t.Errorf("%s: %d, %v", text, q, err)
		}
	}
	for _, text := range []string{"", "-1", "many"} {
		if err := new(quota).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
