package compat_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A head of version 0.1.0 is stopped, and this version is started on its data: everything is there, and a run goes on whose agent
// is of the old version. It may go back and forth as long as it is alone. Then it grows.
func TestUpgrade(t *testing.T) {
	h := newHead(t)
	h.up(oldTrivet)
	image := h.furnish(oldTrivet)
	cl := h.asks(h)
	token := h.must(oldTrivet, "token", "issue", "robot")
	done := h.plugIn("done", true, h)
	h.must(oldTrivet, "provision", "done", "--template", "install", "--machine", "done", "--no-wait")
	done.succeeds(cl)
	before, keys, logs := h.records(), h.keys(), h.must(oldTrivet, "logs", "done")
	if logs == "" {
		t.Error("the run has no logs")
	}

	runs := h.plugIn("runs", true, h)
	h.must(oldTrivet, "provision", "runs", "--template", "install", "--machine", "runs", "--no-wait")
	for _, step := range []struct{ action, program string }{{"rest0", newTrivet}, {"rest1", oldTrivet}, {"rest2", newTrivet}} {
		runs.awaits(cl, step.action, trivet.StepRunning)
		h.stop()
		h.up(step.program)
	}
	runs.succeeds(cl)

	ref, err := client.Of[trivet.Image](cl).Get(t.Context(), "system")
	if err != nil {
		t.Fatal(err)
	}
	check := func(h *head) {
		t.Helper()
		h.await("it has all records", func() error { return missing(before, h.records()) })
		if after := h.keys(); !reflect.DeepEqual(keys, after) {
			t.Errorf("the keys were %v, and are %v", keys, after)
		}
		h.gives(ref.Spec.Blob.Digest, image)
		if who, err := h.as(token, h).Whoami(t.Context()); err != nil || who.Account != "robot" {
			t.Errorf("the token: %+v, %v", who, err)
		}
	}
	check(h)
	if now := h.must(newTrivet, "logs", "done"); now != logs {
		t.Errorf("the logs were\n%s\nand are\n%s", logs, now)
	}

	second := h.join("head1")
	second.borrow(h)
	check(second)
	h.await("it knows that it is not alone", func() error {
		if text, err := os.ReadFile(filepath.Join(h.dir, "head.json")); err != nil || !strings.Contains(string(text), `"format":2`) {
			return fmt.Errorf("%s, %v", text, err)
		}
		return nil
	})
	h.kill()
	h.start(oldTrivet)
	h.refused("in format 2", "reads up to 1", "run that version of trivet")
	h.up(newTrivet)
	check(h)
	grown := h.plugIn("grown", true, second)
	h.must(newTrivet, "provision", "grown", "--template", "install", "--machine", "grown", "--no-wait")
	grown.succeeds(cl)
}

// borrow gives a head the administrator's credential of another one.
func (h *head) borrow(from *head) {
	h.Helper()
	c := from.credential()
	c.Endpoints = []string{h.api()}
	own := client.File{Current: "local", Contexts: map[string]client.Context{"local": c}}
	if err := own.Write(filepath.Join(h.dir, "admin.yaml")); err != nil {
		h.Fatal(err)
	}
}

// records are all that the head has but heads, as JSON, by kind and name.
func (h *head) records() map[string]any {
	h.Helper()
	all := map[string]any{}
	for _, k := range trivet.Kinds {
		if k.Kind == "Head" {
			continue
		}
		var list []map[string]any
		if err := json.Unmarshal([]byte(h.must(oldTrivet, "get", k.Plural, "-o", "json")), &list); err != nil {
			h.Fatal(err)
		}
		for _, rec := range list {
			if k.Kind == "Site" { // it counts heads
				delete(rec, "status")
				delete(rec, "revision")
			}
			all[fmt.Sprint(k.Kind, " ", rec["name"])] = rec
		}
	}
	return all
}

// missing tells of a record that is not as it was.
func missing(before, after map[string]any) error {
	for name, was := range before {
		if is := after[name]; !reflect.DeepEqual(was, is) {
			return fmt.Errorf("%s was %v, and is %v", name, was, is)
		}
	}
	return nil
}

// keys are the head's files of keys.
func (h *head) keys() map[string]string {
	h.Helper()
	files, err := filepath.Glob(filepath.Join(h.dir, "keys/*"))
	if err != nil {
		h.Fatal(err)
	}
	keys := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			h.Fatal(err)
		}
		keys[strings.TrimPrefix(f, h.dir)] = string(text)
	}
	return keys
}
