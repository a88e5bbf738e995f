package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
)

// Values are sorted as their types have it, and records without one come first.
func TestSorter(t *testing.T) {
	for _, tc := range []struct{ kind, by, values, want string }{
		{"machines", "spec.rack", `"r10" "r2" null "a"`, "null a r2 r10"},
		{"machines", "status.events", `10 9 null 100`, "null 9 10 100"},
		{"machines", "created", `"2026-01-02T00:00:00Z" "2026-01-01T00:00:00.5Z" "2026-01-01T00:00:00Z"`,
			"2026-01-01T00:00:00Z 2026-01-01T00:00:00.5Z 2026-01-02T00:00:00Z"},
		{"networks", "spec.lease", `"1h0m0s" "90s" "24h0m0s"`, "90s 1h0m0s 24h0m0s"},
		{"machines", "spec.disk.minSize", `"1TB" "512MiB" "400GB"`, "512MiB 400GB 1TB"},
		{"machines", "spec.cordoned", `true null`, "null true"},
	} {
		info, err := trivet.LookupKind(tc.kind)
		if err != nil {
			t.Fatal(err)
		}
		by, err := sorter(info, tc.by)
		if err != nil {
			t.Fatal(err)
		}
		var all []found
		path := strings.Split(tc.by, ".")
		for value := range strings.FieldsSeq(tc.values) {
			text := value
			for i := len(path) - 1; i >= 0; i-- {
				text = `{"` + path[i] + `":` + text + `}`
			}
			all = append(all, found{raw: json.RawMessage(text)})
		}
		var got []string
		for _, f := range sorted(all, by) {
			got = append(got, valueAt(f.raw, path))
		}
		if want := strings.Replace(tc.want, "null ", " ", 1); strings.Join(got, " ") != want {
			t.Errorf("%s by %s: %q; want %q", tc.kind, tc.by, strings.Join(got, " "), want)
		}
	}
}

func TestTimeOf(t *testing.T) {
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"90m": "2026-01-31T10:30:00Z", "2026-01-01T00:00:00Z": "2026-01-01T00:00:00Z", "": "0001-01-01T00:00:00Z",
		"-1h": "error", "today": "error",
	} {
		got, err := timeOf("--since", text, now)
		if text := got.Format(time.RFC3339); err == nil && text != want || err != nil && want != "error" {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}
