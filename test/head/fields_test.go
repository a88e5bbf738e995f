package head_test

import (
	"bytes"
	"context"
	"encoding"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/agent/installer/journal"
	"github.com/trivet-project/trivet/internal/cluster"
	"github.com/trivet-project/trivet/internal/keyring"
	"github.com/trivet-project/trivet/internal/lab"
	"github.com/trivet-project/trivet/internal/testhead"
)

// Every object of every record has a field of a later version, while a head, its controllers, an agent and commands
// read the records, change them and write them. All of these fields still exist in the end.
func TestLaterFields(t *testing.T) {
	h := newHead(t)
	h.createInstallSite()
	m := h.powerOn("m2", "52:54:00:77:00:02")
	h.MustTrivet("provision", "m2", "--template", "install", "--machine", "m2", "--no-wait")
	m.await("rest0", trivet.StepRunning)
	h.Apply("{kind: Machine, name: idle, spec: {nics: [{mac: '52:54:00:77:00:03'}]}}")
	h.Stop()
	marks := h.mark()
	h.Up()
	h.edit("first")
	h.edit("second")
	m.await("rest0", trivet.StepDone)
	m.awaitSuccess()
	h.Stop()
	h.expectMarks(marks)
}

const installSite = `
kind: Template
name: install
spec:
  actions:
    - {name: wipe, use: wipe}
    - {name: image, use: image, with: {image: system}}
    - {name: rest0, use: noop, with: {sleep: 2s}}
    - {name: rest1, use: noop, with: {sleep: 2s}}
    - {name: rest2, use: noop, with: {sleep: 2s}}
    - {name: seed, use: seed}
    - {name: reboot, use: reboot}
---
kind: Site
name: site
spec: {platform: sim, accept: true}
---
kind: Secret
name: bmc
spec: {data: {user: root, password: calvin}}
---
kind: Account
name: robot
spec: {role: viewer}
`

// createInstallSite creates all that machines are installed with.
func (h *head) createInstallSite() {
	h.Helper()
	cl := h.Client(timeout)
	kernel, errKernel := cl.PutBlob(h.Context(), bytes.NewReader(content(1)), client.PutOptions{})
	initrd, errInitrd := cl.PutBlob(h.Context(), bytes.NewReader(content(2)), client.PutOptions{})
	_, err := client.Of[trivet.Platform](cl).Create(h.Context(), &trivet.Platform{Meta: trivet.Meta{Name: "sim"},
		Spec: trivet.PlatformSpec{Arch: "amd64", Version: "simulated", Kernel: kernel, Initrd: initrd}})
	if err := errors.Join(errKernel, errInitrd, err); err != nil {
		h.Fatal(err)
	}
	h.MustTrivet("image", "import", write(h.T, "system.raw", content(3)), "--name", "system")
	h.Apply(installSite)
}

// content is 9 MiB: three chunks.
func content(seed byte) []byte {
	b := make([]byte, 9<<20)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// machine is a simulated machine.
type machine struct {
	*lab.Machine
	h *head
}

// powerOn creates a machine and powers it on until the test ends.
func (h *head) powerOn(name, mac string) *machine {
	h.Helper()
	log := testhead.NewLog()
	m := &machine{&lab.Machine{Name: name, MAC: mac, Dir: h.TempDir(), Up: func() {},
		DHCP: []string{h.Address + ":7067"}, Log: slog.New(slog.NewTextHandler(log, nil))}, h}
	h.Apply(fmt.Sprintf("{kind: Machine, name: %s, spec: {nics: [{mac: %q}]}}", name, mac))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			h.Error(err)
		}
	})
	h.Cleanup(func() {
		cancel()
		running.Wait()
		if h.Failed() {
			h.Logf("log of %s:\n%s", name, log)
		}
	})
	return m
}

// await waits until an action of the machine's run has reached a state.
func (m *machine) await(action string, state trivet.StepState) {
	m.h.Helper()
	m.h.Await(fmt.Sprint(m.Name, ": ", action, " is ", state), func() error {
		w, err := m.run()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(w.Status.Steps, func(s trivet.Step) bool { return s.Name == action })
		if i < 0 || w.Status.Steps[i].State != state {
			return fmt.Errorf("the run is %+v", w.Status)
		}
		return nil
	})
}

// run returns the machine's run.
func (m *machine) run() (*trivet.Workflow, error) {
	return client.Of[trivet.Workflow](m.h.Client(-1)).Get(m.h.Context(), m.Name+"-1")
}

// awaitSuccess waits until the run has succeeded, and wants each action to have begun once.
func (m *machine) awaitSuccess() {
	m.h.Helper()
	var w *trivet.Workflow
	m.h.Await(m.Name+" is installed", func() (err error) {
		if w, err = m.run(); err == nil && w.Status.State != trivet.WorkflowSucceeded {
			err = fmt.Errorf("the run is %+v", w.Status)
		}
		return err
	})
	entries, err := journal.Read(m.JournalPath())
	if err != nil {
		m.h.Fatal(err)
	}
	begun := map[string]int{}
	for _, e := range entries {
		if e.Report != nil && e.Report.State == trivet.StepRunning {
			begun[e.Report.Action]++
		}
	}
	for _, a := range w.Spec.Actions {
		if begun[a.Name] != 1 {
			m.h.Errorf("%s: %s began %d times", m.Name, a.Name, begun[a.Name])
		}
	}
}

// edit changes records as people do.
func (h *head) edit(label string) {
	h.Helper()
	file := site + "---" + installSite
	for _, name := range []string{"lo", "install", "site", "bmc", "robot"} { // written without the fields
		file = strings.Replace(file, "name: "+name+"\n", "name: "+name+"\nlabels: {edit: "+label+"}\n", 1)
	}
	// What was read and written before is no longer of the file.
	for _, text := range []string{strings.ReplaceAll(file, "sleep: 2s", "sleep: 3s"), file} {
		if r, err := h.TrivetStdin(text, "apply", "--force-conflicts", "-f", "-"); err != nil {
			h.Fatalf("%v\n%s", err, r.All)
		}
	}
	// read, and written
	for _, record := range []string{
		"network/lo", "machine/idle", "template/install", "site/site", "account/robot", "image/system",
	} {
		kind, name, _ := strings.Cut(record, "/")
		var doc map[string]any
		if err := json.Unmarshal([]byte(h.MustTrivet("get", kind, name, "-o", "json")), &doc); err != nil {
			h.Fatal(err)
		}
		// A person may have meant something by an unknown field.
		r, err := h.TrivetStdin(yaml(h, doc), "apply", "-f", "-")
		if err == nil || !strings.Contains(r.All, "later is not known") {
			h.Errorf("unknown fields are accepted from a file: %v\n%s", err, r.All)
		}
		without(doc)
		doc["labels"] = map[string]string{"edit": label + "_again"}
		h.Apply(yaml(h, doc))
	}
	h.MustTrivet("quarantine", "idle", "--reason", label)
	h.MustTrivet("accept", "idle")
}

// yaml is also JSON.
func yaml(h *head, doc any) string {
	text, err := json.Marshal(doc)
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}

// without removes the fields that this version does not know.
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

// storedRecords reads and writes the values of a store as a head does: sealed, and bound to their place.
type storedRecords struct {
	*clientv3.Client
	cipher *keyring.Cipher
}

// place is where write number version of a key is valid. The revision of its creation is not known then.
func place(kv *mvccpb.KeyValue, version int64) []byte {
	data := make([]byte, 16)
	if version > 1 {
		binary.BigEndian.PutUint64(data, uint64(kv.CreateRevision))
	}
	binary.BigEndian.PutUint64(data[8:], uint64(version))
	return append(data, kv.Key...)
}

const (
	txIDBytes = 16 // the ID of the transaction is before the record's JSON
	asIs      = 0  // the form of the JSON, a byte before it; else it is in S2
	// A record whose spec has a key of its own has this byte before the JSON, the ID of the transaction that wrote the
	// spec, and four bytes: where null is in the JSON in its place.
	apart     = 3
	apartSize = 1 + txIDBytes + 4
)

// open returns a record's JSON with its spec.
func (s storedRecords) open(ctx context.Context, kv *mvccpb.KeyValue) (txID, doc []byte, err error) {
	plain, _, err := s.cipher.Open(kv.Value, place(kv, kv.Version))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", kv.Key, err)
	}
	txID, text := plain[:txIDBytes], plain[txIDBytes:]
	if text[0] != apart {
		doc, err = unpack(text)
		return txID, doc, err
	}
	got, err := s.Get(ctx, strings.Replace(string(kv.Key), recordPrefix, recordPrefix+"-spec/", 1))
	if err != nil || len(got.Kvs) != 1 {
		return nil, nil, fmt.Errorf("the spec of %s: %w", kv.Key, err)
	}
	_, spec, errSpec := s.open(ctx, got.Kvs[0])
	doc, err = unpack(text[apartSize:])
	if err := errors.Join(err, errSpec); err != nil {
		return nil, nil, err
	}
	at := binary.BigEndian.Uint32(text[1+txIDBytes:])
	return txID, slices.Concat(doc[:at], spec, doc[int(at)+len("null"):]), nil
}

func unpack(text []byte) ([]byte, error) {
	if text[0] == asIs {
		return text[1:], nil
	}
	return s2.Decode(nil, text[1:])
}

// replace writes the next value of a key, with the spec, as heads did that knew no other form.
func (s storedRecords) replace(ctx context.Context, kv *mvccpb.KeyValue, txID, doc []byte) error {
	box := s.cipher.Seal(slices.Concat(txID, []byte{asIs}, doc), place(kv, kv.Version+1))
	_, err := s.Put(ctx, string(kv.Key), string(box))
	return err
}

// raw runs a function on the store of a head that is stopped.
func (h *head) raw(do func(s storedRecords)) {
	h.Helper()
	m, err := cluster.Start(h.Context(), cluster.Config{Dir: filepath.Join(h.Dir, "store"), Name: "head0", Reserve: -1})
	if err != nil {
		h.Fatal(err)
	}
	defer m.Close()
	text, err := os.ReadFile(filepath.Join(h.Dir, "keys", "store.keys"))
	if err != nil {
		h.Fatal(err)
	}
	keys, err := keyring.Parse(text)
	if err != nil {
		h.Fatal(err)
	}
	do(storedRecords{m.Client(), keyring.NewCipher(keys)})
}

const recordPrefix = "/trivet/"

// mark adds a field to every object of every record, with a value of its own, and returns the values by the records'
// keys.
func (h *head) mark() map[string][]string {
	h.Helper()
	marks := map[string][]string{}
	h.raw(func(c storedRecords) {
		for _, k := range trivet.Kinds {
			got, err := c.Get(h.Context(), recordPrefix+strings.ToLower(string(k.Kind))+"/", clientv3.WithPrefix())
			if err != nil {
				h.Fatal(err)
			}
			for _, kv := range got.Kvs {
				txID, text, err := c.open(h.Context(), kv)
				if err != nil {
					h.Fatal(err)
				}
				var doc map[string]any
				if err := json.Unmarshal(text, &doc); err != nil {
					h.Fatal(err)
				}
				key := string(kv.Key)
				walk(reflect.TypeOf(k.New()), doc, func(object map[string]any) {
					value := fmt.Sprintf("later:%s#%d", key, len(marks[key]))
					object["later"] = []any{map[string]any{"of": value}}
					marks[key] = append(marks[key], value)
				})
				text, err = json.Marshal(doc)
				if err == nil {
					err = c.replace(h.Context(), kv, txID, text)
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

// walk finds the objects that are structs of the project.
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

// expectMarks expects every mark, and every record that had one.
func (h *head) expectMarks(marks map[string][]string) {
	h.Helper()
	h.raw(func(c storedRecords) {
		for key, values := range marks {
			got, err := c.Get(h.Context(), key)
			if err != nil {
				h.Fatal(err)
			}
			if len(got.Kvs) == 0 {
				h.Errorf("%s is gone", key)
				continue
			}
			_, text, err := c.open(h.Context(), got.Kvs[0])
			if err != nil {
				h.Error(err)
			}
			for _, v := range values {
				if !strings.Contains(string(text), `"`+v+`"`) {
					h.Errorf("%s is gone from %s", v, text)
				}
			}
		}
	})
}
