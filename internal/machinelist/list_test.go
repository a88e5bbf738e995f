package machinelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/trivet-project/trivet"
)

// documents returns the documents of YAML or JSON.
func documents(t testing.TB, text string) []any {
	t.Helper()
	docs := []any{}
	for _, part := range strings.Split(text, "\n---\n") {
		var v any
		if err := yaml.Unmarshal([]byte(part), &v); err != nil {
			t.Fatal(err)
		}
		docs = append(docs, v)
	}
	return docs
}

// lines returns what a list has: of each machine its record in one line, its notes, and its error.
func lines(t testing.TB, list []*Entry) string {
	t.Helper()
	var b strings.Builder
	for _, e := range list {
		text, err := json.Marshal(e.Machine)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(e.Where + ": " + strings.TrimPrefix(string(text), `{"kind":"Machine",`) + "\n")
		for _, n := range e.Notes {
			b.WriteString("  " + n + "\n")
		}
		if e.Err != nil {
			b.WriteString("  ERROR " + e.Err.Error() + "\n")
		}
	}
	return b.String()
}

// Each list in testdata is read as the file beside it says. UPDATE=1 rewrites those.
func TestLists(t *testing.T) {
	for name, o := range map[string]Options{
		"rack.csv": {Secret: "bmc"}, "semicolon.csv": {}, "drivers.csv": {}, "maas.json": {Secret: "bmc", Addresses: true},
		"tinkerbell.yaml": {Addresses: true}, "metal3.yaml": {}, "available.yaml": {Available: true, Secret: "own"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		var docs []any
		if !IsCSV(text) {
			docs = documents(t, string(text))
		}
		if isCSV := strings.HasSuffix(name, ".csv"); isCSV != (docs == nil) {
			t.Errorf("%s: CSV is %v", name, docs == nil)
		}
		list, err := Read(text, docs, o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, golden := lines(t, list), filepath.Join("testdata", name+".machines")
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(want) != got {
			t.Errorf("%s (%v):\n%s", name, err, got)
		}
	}
}

func TestListsAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "the list has no machines",
		"name,mac\n":                "the list has no machines",
		"name,rak\nm1,x":            `line 1: column "rak" is not known; did you mean rack?, or label:KEY`,
		"mac\n52:54:00:00:00:01":    "there is no column name",
		"name,name\nm1,m2":          "there are two columns name",
		"name,mac\nm1":              "wrong number of fields",
		"name,mac\n\"m1,x":          "",
		"[]":                        "the list has no machines",
		`[{"hostname":"m1"}]`:       "machine 1 has no system_id: the list is not one of MAAS",
		`[{"system_id":7}]`:         "machine 1: invalid",
		`["x"]`:                     "machine 1: invalid",
		"kind: Pod\napiVersion: v1": `document 1: invalid: it is "Pod" of "v1"; what can be read are Hardware`,
		"kind: Machine\nname: m1":   `it has no kind with an apiVersion`,
		"items: [{items: [{items: [{items: [{items: [{items: []}]}]}]}]}]": "nested too deeply",
	} {
		var docs []any
		if !IsCSV([]byte(text)) {
			docs = documents(t, text)
		}
		list, err := Read([]byte(text), docs, Options{})
		if !errors.Is(err, trivet.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, lines(t, list), err, want)
		}
	}
}

// Whatever a list has, it is read in bounded time without a panic, and what is returned without an error is valid.
func FuzzLists(f *testing.F) {
	files, err := filepath.Glob("testdata/*.[cjy]*")
	if err != nil || len(files) < 6 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, docs := range [][]any{nil, decoded(text)} {
			list, err := Read([]byte(text), docs, Options{Secret: "bmc", Addresses: true, Available: true})
			if err != nil && !errors.Is(err, trivet.ErrInvalid) {
				t.Error(err)
			}
			for _, e := range list {
				if e.Err == nil && (e.Machine.Validate() != nil || trivet.ValidateLabels(e.Machine.Labels) != nil) {
					t.Errorf("%+v is not valid", e.Machine)
				}
			}
		}
	})
}

// decoded returns the documents of a text that is JSON; none for others.
func decoded(text string) []any {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return []any{}
	}
	return []any{v}
}

// A BMC that two machines of a list have, however it is written, marks the second one.
func TestSameBMCInList(t *testing.T) {
	text := "name,mac,bmc\n" +
		"m1,52:54:00:00:00:01,10.9.1.1\nm2,52:54:00:00:00:02,ipmi://10.9.1.1:623\nm3,52:54:00:00:00:03,10.9.1.3\n" +
		"b1,52:54:00:00:00:04,redfish://10.9.1.4/redfish/v1/Systems/1\n" +
		"b2,52:54:00:00:00:05,redfish://10.9.1.4/redfish/v1/Systems/2\n"
	list, err := Read([]byte(text), nil, Options{Secret: "bmc"})
	if err != nil || len(list) != 5 {
		t.Fatal(list, err)
	}
	for i, e := range list {
		if i != 1 && e.Err != nil || i == 1 && (!errors.Is(e.Err, trivet.ErrInvalid) ||
			!strings.Contains(e.Err.Error(), "line 2 (m1) has the BMC 10.9.1.1:623, too")) {
			t.Errorf("%s: %v", e.Where, e.Err)
		}
	}
}

// A service without a system is that of the only one, in whatever order the list has them.
func TestServiceOfSystemsInList(t *testing.T) {
	for _, c := range []struct{ bmcs, want string }{
		{"10.9.1.4/redfish/v1/Systems/1 10.9.1.4/redfish/v1/Systems/2 10.9.1.4", "line 4 (m3): line 2 (m1)"},
		{"10.9.1.4 10.9.1.5 10.9.1.4/redfish/v1/Systems/1", "line 4 (m3): line 2 (m1)"},
		{"10.9.1.4/redfish/v1/Systems/1 10.9.1.5 10.9.1.4/redfish/v1/Systems/1/", "line 4 (m3): line 2 (m1)"},
	} {
		text := "name,mac,bmc\n"
		for i, bmc := range strings.Fields(c.bmcs) {
			text += fmt.Sprintf("m%d,52:54:00:00:00:%02x,redfish://%s\n", i+1, i, bmc)
		}
		list, err := Read([]byte(text), nil, Options{Secret: "bmc"})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range list {
			if e.Err != nil {
				got += fmt.Sprintf("%s (%s): %v", e.Where, e.Machine.Name, e.Err)
			}
		}
		if got = strings.Replace(got, "invalid: ", "", 1); !strings.HasPrefix(got, c.want+" has the BMC") {
			t.Errorf("%s: %s", c.bmcs, got)
		}
	}
}
