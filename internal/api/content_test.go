package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

func digestOf(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// Content may be in use by a record that this head does not have yet: without a quorum nothing is deleted.
func TestNoBlobIsDeletedWithoutAQuorum(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	ref, err := h.client(h.admin).PutBlob(t.Context(), strings.NewReader("kernel"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h.member.Close()
	h.isCutOff.Store(true)
	status, got := h.ask(h.admin, "DELETE", "/v1/blobs/"+ref.Digest, "")
	if text := fmt.Sprint(got); status != http.StatusServiceUnavailable ||
		!strings.Contains(text, "delete blob "+ref.Digest) || !strings.Contains(text, "quorum") {
		t.Errorf("%d %v", status, got)
	}
	if status, _ := h.ask(h.admin, "GET", "/v1/blobs/"+ref.Digest, ""); status != http.StatusOK {
		t.Errorf("it is gone: %d", status)
	}
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	ctx := t.Context()
	data := bytes.Repeat([]byte("trivet "), 1<<20) // 7 MiB
	var sent int64
	ref, err := admin.PutBlob(ctx, bytes.NewReader(data),
		client.PutOptions{Bytes: int64(len(data)), Progress: func(n int64) { sent = n }})
	if err != nil || ref.Digest != digestOf(data) || ref.Bytes != int64(len(data)) || ref.Chunks == "" ||
		sent != ref.Bytes {
		t.Fatalf("%+v, %v, %d sent", ref, err, sent)
	}
	sent = -1
	again, err := admin.PutBlob(ctx, bytes.NewReader(data),
		client.PutOptions{Digest: ref.Digest, Progress: func(n int64) { sent = n }})
	if err != nil || again != ref || sent != -1 {
		t.Errorf("existing content was sent again: %+v, %v", again, err)
	}
	if _, err := admin.PutBlob(ctx, strings.NewReader("x"),
		client.PutOptions{Digest: digestOf([]byte("y"))}); !errors.Is(err, trivet.ErrInvalid) {
		t.Errorf("wrong digest: %v", err)
	}
	resp := h.do(h.admin, "GET", "/v1/blobs/"+ref.Digest, "", "Range: bytes=7-13")
	part := must(io.ReadAll(resp.Body))(t)
	resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent || string(part) != "trivet " {
		t.Errorf("%d %q", resp.StatusCode, part)
	}
	if status, _ := h.ask(h.admin, "GET", "/v1/blobs/"+digestOf([]byte("none")), ""); status != 404 {
		t.Errorf("no such blob: %d", status)
	}
	if status, _ := h.ask(h.admin, "GET", "/v1/blobs/..%2f..%2fkeys", ""); status != 422 {
		t.Errorf("no digest: %d", status)
	}
	image := &trivet.Image{Meta: trivet.Meta{Project: "default", Name: "i"},
		Spec: trivet.ImageSpec{Format: "raw", Blob: ref}}
	if _, err := client.Of[trivet.Image](admin).Create(ctx, image); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteBlob(ctx, ref.Digest); !errors.Is(err, trivet.ErrConflict) ||
		!strings.Contains(err.Error(), "image i") {
		t.Errorf("an image's blob: %v", err)
	}
	if err := client.Of[trivet.Image](admin).Delete(ctx, "i"); err != nil {
		t.Fatal(err)
	}
	if err := admin.DeleteBlob(ctx, ref.Digest); err != nil {
		t.Error(err)
	}
	if list, err := admin.Blobs(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// A check names known blobs, at most 100, and returns what is found of each copy.
func TestCheckBlobs(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	admin := h.client(h.admin)
	ref, err := admin.PutBlob(t.Context(), strings.NewReader("kernel"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, digests := range [][]string{nil, {ref.Digest}} {
		var copies []trivet.BlobCopy
		err := admin.CheckBlobs(t.Context(), trivet.BlobCheck{Digests: digests},
			func(c trivet.BlobCopy) { copies = append(copies, c) })
		if err != nil || len(copies) != 1 || copies[0].State != trivet.CopyGood || copies[0].Digest != ref.Digest ||
			copies[0].Bytes != ref.Bytes || copies[0].Head == "" {
			t.Errorf("%v: %+v, %v", digests, copies, err)
		}
	}
	none := digestOf([]byte("none"))
	for _, c := range []struct {
		digests []string
		want    error
		text    string
	}{
		{[]string{ref.Digest, none}, trivet.ErrNotFound, none},
		{[]string{"sha256:12"}, trivet.ErrInvalid, "64 hex digits"},
		{slices.Repeat([]string{ref.Digest}, 101), trivet.ErrInvalid, "more than 100"},
	} {
		err := admin.CheckBlobs(t.Context(), trivet.BlobCheck{Digests: c.digests}, func(c trivet.BlobCopy) {
			t.Errorf("checked: %+v", c)
		})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%d digests: %v, want %v with %q", len(c.digests), err, c.want, c.text)
		}
	}
}

// After a broken connection an upload continues at the head's offset, and the stored content is what was sent.
func TestUploadIsResumed(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5, 6, 7}, 3<<20) // 21 MiB
	cut := false
	reads := &watched{Reader: bytes.NewReader(data), at: func(offset int64) {
		if offset > 8<<20 && !cut {
			cut = true
			h.server.Close() // every connection, as when a head restarts
			h.listenAgain()
		}
	}}
	ref, err := h.client(h.admin).PutBlob(t.Context(), reads, client.PutOptions{Bytes: int64(len(data))})
	if err != nil || ref.Digest != digestOf(data) {
		t.Fatalf("%+v, %v", ref, err)
	}
	if !cut || reads.seeks < 2 {
		t.Errorf("the connection was not cut: %d seeks", reads.seeks)
	}
}

type watched struct {
	*bytes.Reader
	at    func(int64)
	seeks int
}

func (w *watched) Read(b []byte) (int, error) {
	w.at(w.Size() - int64(w.Len()))
	return w.Reader.Read(b)
}

func (w *watched) Seek(offset int64, whence int) (int64, error) {
	w.seeks++
	return w.Reader.Seek(offset, whence)
}

// A failure of the source is no failure of a head.
func TestUploadOfABrokenSource(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f := must(os.Open(path))(t)
	f.Close()
	if _, err := h.client(h.admin).PutBlob(t.Context(), f, client.PutOptions{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}

func TestLogsAreFollowedToTheEnd(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	run := &trivet.Workflow{Meta: trivet.Meta{Project: "default", Name: "w1"}, Spec: trivet.WorkflowSpec{Machine: "m1",
		Actions: []trivet.Action{{Name: "wipe", Use: "noop"}, {Name: "image", Use: "noop"}}},
		Status: trivet.WorkflowStatus{State: trivet.WorkflowRunning}}
	put(h, h.fleet.Workflows, run)
	write := func(action string, try int, offset int64, text string) {
		key := trivet.LogKey{Action: action, Epoch: 1, Attempt: try}
		if err := h.logs.Append("default/w1", key, offset, []byte(text)); err != nil {
			t.Error(err)
		}
	}
	long := strings.Repeat("0123456789äöü\n", 10000)
	write("wipe", 1, 0, "wiping\n")
	var text strings.Builder
	n := 0
	for p, err := range h.client(h.admin).Logs(t.Context(), "w1", client.LogOptions{Follow: true}) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s", p.Text)
		if n++; n == 1 {
			write("wipe", 1, 7, "wiped\n")
			write("image", 2, 0, long)
			ended := *run
			ended.Revision, ended.Status.State = 0, trivet.WorkflowSucceeded
			put(h, h.fleet.Workflows, &ended)
		}
	}
	if got := text.String(); got != "wiping\nwiped\n"+long {
		t.Errorf("%d bytes: %.100q", len(got), got)
	}
	var actions []string
	for p, err := range h.client(h.admin).Logs(t.Context(), "w1", client.LogOptions{Action: "wipe"}) {
		if err != nil {
			t.Fatal(err)
		}
		actions = append(actions, p.Action)
	}
	if len(actions) != 1 || actions[0] != "wipe" {
		t.Errorf("%v", actions)
	}
	for _, err := range h.client(h.admin).Logs(t.Context(), "none", client.LogOptions{}) {
		if !errors.Is(err, trivet.ErrNotFound) {
			t.Errorf("no such run: %v", err)
		}
	}
}

// An action that is repeated after a reset of the machine begins its log again. The log of the earlier epoch is kept
// as it was, and printed on request.
func TestLogsOfARepeatedAttempt(t *testing.T) {
	t.Parallel()
	a := newAgent(t)
	a.head.fleet.AgentSilence = nil // the first agent is silent when the second boots
	a.claim()
	for i, text := range []string{"one: written by the first agent\n", "two: by the second\n"} {
		booted := a.head.agent(fmt.Sprint("boot-", i))
		if _, err := booted.hello(int64(i)); err != nil {
			t.Fatal(err)
		}
		booted.wrote(a.head, i+1, 0, text)
	}
	for _, tc := range []struct {
		all  bool
		want string
	}{{false, "2 two: by the second\n"}, {true, "1 one: written by the first agent\n2 two: by the second\n"}} {
		var got strings.Builder
		for p, err := range a.head.client(a.head.admin).Logs(t.Context(), "p-1", client.LogOptions{All: tc.all}) {
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&got, "%d %s", p.Epoch, p.Text)
		}
		if got.String() != tc.want {
			t.Errorf("all: %t: got\n%swant\n%s", tc.all, got.String(), tc.want)
		}
	}
}

// The document has every route, and every schema that it refers to.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	_, doc := h.ask(h.admin, "GET", "/openapi.json", "")
	paths := doc["paths"].(map[string]any)
	for _, info := range trivet.Kinds {
		under := "/v1/"
		if info.Scope == trivet.ScopeProject {
			under = "/v1/projects/{project}/"
		}
		ops, _ := paths[under+info.Plural+"/{name}"].(map[string]any)
		_, writes := ops["put"]
		if ops["get"] == nil || writes == info.ReadOnly {
			t.Errorf("%s: %v", info.Plural, ops)
		}
	}
	text := string(h.handler.OpenAPI())
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for ref := range strings.SplitSeq(text, `"$ref":"#/components/schemas/`) {
		if name, _, ok := strings.Cut(ref, `"`); ok && !strings.HasPrefix(ref, "{") && schemas[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
	if !json.Valid(h.handler.OpenAPI()) || strings.Contains(text, `"additionalProperties":false`) {
		t.Error("not JSON, or closed to newer heads")
	}
}

// The document in docs/ is the one that heads serve. UPDATE=1 writes it.
func TestOpenAPIIsPublished(t *testing.T) {
	t.Parallel()
	const path = "../../docs/openapi.json"
	var served bytes.Buffer
	if err := json.Indent(&served, newHead(t).handler.OpenAPI(), "", " "); err != nil {
		t.Fatal(err)
	}
	served.WriteByte('\n')
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, served.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	published, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(published, served.Bytes()) {
		t.Errorf("%s is out of date (%v); update it with: UPDATE=1 go test -run %s ./internal/api", path, err, t.Name())
	}
}

func TestMetricsCountRequests(t *testing.T) {
	t.Parallel()
	h := newHead(t)
	h.ask(h.admin, "GET", "/v1/machines", "")
	_, got := h.ask(h.admin, "GET", "/metrics", "")
	text := fmt.Sprint(got["text"])
	for _, want := range []string{`trivet_api_requests_total{route="GET /v1/machines",status="200"} 1`,
		"\nprocess_open_fds ", "\ngo_goroutines ", "\netcd_server_leader_changes_seen_total ",
		"\netcd_disk_wal_fsync_duration_seconds_bucket{"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %.500s", want, text)
		}
	}
}
