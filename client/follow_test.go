package client_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

// A client follows the cluster's CAs as responses have them, and stores them: one that learnt the new pin reaches a
// head of the new CA, and afterwards none of the old one.
func TestClientFollowsTheCA(t *testing.T) {
	old, next := newCluster(t), newCluster(t)
	old.names = []string{"127.0.0.1"}
	var trust atomic.Value
	trust.Store(old.keys.CA.Trust())
	serve := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(trivet.HeaderTrust, trust.Load().(string))
		w.Write([]byte(`{"name": "alice"}`))
	}
	before, after := old.head(serve), next.head(serve)
	var stored []string
	connect := func(trust, url string) *client.Client {
		t.Helper()
		cl, err := client.New(client.Config{Endpoints: []string{url}, Trust: trust, Token: "token", RetryTimeout: -1,
			OnTrust: func(trust string) { stored = append(stored, trust) }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		return cl
	}
	cl := connect(old.keys.CA.Trust(), before.URL)
	call := func() error { _, err := cl.Whoami(t.Context()); return err }
	if err := call(); err != nil || len(stored) > 0 {
		t.Errorf("with the same CA: %v, %v", err, stored)
	}
	both := old.keys.CA.Trust() + "," + next.keys.CA.Trust()
	for _, pins := range []string{both, "sha256:1", both + ",", "", both} { // what is not valid changes nothing
		trust.Store(pins)
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(stored, []string{both}) {
		t.Errorf("stored %v", stored)
	}
	trust.Store(next.keys.CA.Trust())
	cl = connect(stored[0], after.URL)
	if err := call(); err != nil || len(stored) != 2 || stored[1] != next.keys.CA.Trust() {
		t.Errorf("at a head of the new CA: %v, stored %v", err, stored)
	}
	cl = connect(stored[1], before.URL)
	if err := call(); !errors.Is(err, trivet.ErrUnauthenticated) {
		t.Errorf("at a head of the old CA, afterwards: %v", err)
	}
	cl = connect(string(old.keys.CA.PEM()), before.URL)
	if err := call(); err != nil || len(stored) != 2 {
		t.Errorf("with certificates in PEM: %v, stored %v", err, stored)
	}
}

// The pins of a context are replaced where they still are the former ones, and nothing else of the file changes.
func TestSaveTrust(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	t.Setenv("TRIVET_CONFIG", path)
	if err := client.SaveTrust("", "old", "new"); !errors.Is(err, trivet.ErrNotFound) {
		t.Errorf("without a file: %v", err)
	}
	file := client.File{Current: "a", Contexts: map[string]client.Context{
		"a": {Endpoints: []string{"https://a"}, Trust: "old", Token: "1"},
		"b": {Endpoints: []string{"https://b"}, Trust: "old", Token: "2"},
		"c": {Endpoints: []string{"https://c"}, Trust: "old", Token: "3"},
	}}
	if err := file.Write(path); err != nil {
		t.Fatal(err)
	}
	if err := client.SaveTrust("", "old", "new"); err != nil {
		t.Error(err)
	}
	for context, former := range map[string]string{"b": "older", "d": "old"} {
		if err := client.SaveTrust(context, former, "new"); !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("context %q: %v", context, err)
		}
	}
	t.Setenv("TRIVET_CONTEXT", "c")
	if err := client.SaveTrust("", "old", "new"); err != nil {
		t.Errorf("by TRIVET_CONTEXT: %v", err)
	}
	got, err := client.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := got.Contexts["a"], got.Contexts["b"], got.Contexts["c"]
	if a.Trust != "new" || a.Token != "1" || b.Trust != "old" || c.Trust != "new" ||
		got.Current != "a" {
		t.Errorf("the file is %+v", got)
	}
}
