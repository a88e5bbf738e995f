package compat_test

import (
	"encoding"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/cluster"
)

// Fields of a version that neither knows are in every object of every record, while heads, controllers, agents and commands of
// both versions read the records, change them and write them. All are there in the end.
func TestLaterFields(t *testing.T) {
	h := newHead(t)
	h.up(oldTrivet)
	h.furnish(oldTrivet)
	cl := h.asks(h)
	boxes := []*box{h.plugIn("m1", true, h), h.plugIn("m2", false, h)}
	for _, b := range boxes {
		h.must(oldTrivet, "provision", b.Name, "--template", "install", "--machine", b.Name, "--no-wait")
		b.awaits(cl, "rest0", trivet.StepRunning)
	}
	h.plugIn("idle", false, h)
	h.stop()
	marks := h.mark()
	for _, at := range []string{oldTrivet, newTrivet} {
		h.up(at)
		for i, by := range []string{oldTrivet, newTrivet} {
			h.edit(by, fmt.Sprint("edit", i, " by ", filepath.Base(by), " at ", filepath.Base(at)))
		}
		for _, b := range boxes {
			if b.awaits(cl, "rest0", trivet.StepDone); at == newTrivet {
				b.succeeds(cl)
			}
		}
		h.stop()
		h.unmarked(marks)
	}
}

// edit changes records as people do.
func (h *head) edit(program, label string) {
	h.Helper()
	label = strings.ReplaceAll(label, " ", "_")
	file := site
	for _, name := range []string{"lo", "install", "site", "bmc", "robot"} { // written without the fields
		file = strings.Replace(file, "name: "+name+"\n", "name: "+name+"\nlabels: {edit: "+label+"}\n", 1)
	}
	h.apply(program, strings.ReplaceAll(file, "sleep: 2s", "sleep: 3s"))
	h.apply(program, file)
	for _, record := range []string{"network/lo", "machine/idle", "template/install", "site/site", "account/robot", "image/system"} { // read, and written
		kind, name, _ := strings.Cut(record, "/")
		var doc map[string]any
		if err := json.Unmarshal([]byte(h.must(program, "get", kind, name, "-o", "json")), &doc); err != nil {
			h.Fatal(err)
		}
		if _, all, err := h.trivet(program, yaml(h, doc), "apply", "-f", "-"); err == nil { // a person may have meant something
			h.Errorf("fields that are not known are taken from a file:\n%s", all)
		} else {
			says(h.T, all, "later is not known")
		}
		without(doc)
		doc["labels"] = map[string]string{"edit": label + "_again"}
		h.apply(program, yaml(h, doc))
	}
	h.must(program, "quarantine", "idle", "--reason", label)
	h.must(program, "accept", "idle")
}

// yaml is also JSON.
func yaml(h *head, doc any) string {
	text, err := json.Marshal(doc)
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}

// without takes the fields out that this version does not know.
func without(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "later")
		for _, e := range v {
			without(e)
		}
	case []any:
		for _, e := range v {
			without(e)
		}
	}
}

// raw runs a function on the store of a head that is stopped.
func (h *head) raw(do func(c *clientv3.Client)) {
	h.Helper()
	m, err := cluster.Start(h.Context(), cluster.Config{Dir: filepath.Join(h.dir, "store"), Name: "head0", Reserve: -1})
	if err != nil {
		h.Fatal(err)
	}
	defer m.Close()
	do(m.Client())
}

const recordPrefix = "/trivet/"

// mark puts a field into every object of every record, with a value that is nowhere else, and gives the values by the records'
// keys.
func (h *head) mark() map[string][]string {
	h.Helper()
	marks := map[string][]string{}
	h.raw(func(c *clientv3.Client) {
		for _, k := range trivet.Kinds {
			got, err := c.Get(h.Context(), recordPrefix+strings.ToLower(string(k.Kind))+"/", clientv3.WithPrefix())
			if err != nil {
				h.Fatal(err)
			}
			for _, kv := range got.Kvs {
				var doc map[string]any
				if err := json.Unmarshal(kv.Value, &doc); err != nil {
					h.Fatal(err)
				}
				key := string(kv.Key)
				walk(reflect.TypeOf(k.New()), doc, func(object map[string]any) {
					value := fmt.Sprintf("later:%s#%d", key, len(marks[key]))
					object["later"] = []any{map[string]any{"of": value}}
					marks[key] = append(marks[key], value)
				})
				text, err := json.Marshal(doc)
				if err == nil {
					_, err = c.Put(h.Context(), key, string(text))
				}
				if err != nil {
					h.Fatal(err)
				}
			}
		}
	})
	if n := len(marks); n < 15 {
		h.Fatalf("only %d records: %v", n, marks)
	}
	return marks
}

// walk finds the objects that are structs of ours.
func walk(t reflect.Type, v any, do func(object map[string]any)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	p := reflect.PointerTo(t)
	if p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		if t.Kind() == reflect.Map {
			for _, e := range v {
				walk(t.Elem(), e, do)
			}
			return
		}
		if t.Kind() != reflect.Struct {
			return
		}
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if inner, ok := v[name]; ok {
				walk(f.Type, inner, do)
			}
		}
		do(v)
	case []any:
		for _, e := range v {
			walk(t.Elem(), e, do)
		}
	}
}

// unmarked tells of each mark that is gone, where its record is there.
func (h *head) unmarked(marks map[string][]string) {
	h.Helper()
	h.raw(func(c *clientv3.Client) {
		for key, values := range marks {
			got, err := c.Get(h.Context(), key)
			if err != nil {
				h.Fatal(err)
			}
			if len(got.Kvs) == 0 {
				h.Errorf("%s is gone", key)
				continue
			}
			for _, v := range values {
				if !strings.Contains(string(got.Kvs[0].Value), `"`+v+`"`) {
					h.Errorf("%s is gone from %s", v, got.Kvs[0].Value)
				}
			}
		}
	})
}
