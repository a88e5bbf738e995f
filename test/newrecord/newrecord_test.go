// Package newrecord_test performs the steps of docs/contributing/new-record.md: it builds trivet with the kind of that
// page, starts a head, and uses the kind.
package newrecord_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
)

const (
	root = "../.."
	page = root + "/docs/contributing/new-record.md"
)

// timeout bounds every wait for the head.
const timeout = 30 * time.Second

func TestNewRecord(t *testing.T) {
	blocks := codeBlocks(t)
	goBlocks, yamlBlocks, console := blocks["go"], blocks["yaml"], blocks["console"]
	if len(goBlocks) != 2 || len(yamlBlocks) != 2 || len(console) != 1 {
		t.Fatalf("the page has %d go, %d yaml and %d console blocks; want 2, 2 and 1",
			len(goBlocks), len(yamlBlocks), len(console))
	}
	dir := sources(t, goBlocks[0], goBlocks[1])
	reference(t, dir)
	h := startHead(t, build(t, dir))
	write(t, filepath.Join(h.dir, "rack.yaml"), yamlBlocks[0])
	write(t, filepath.Join(h.dir, "bad.yaml"), yamlBlocks[1])
	watched := h.watch()
	h.session(console[0])
	if got := watched(); got != "put r1, delete r1" {
		t.Errorf("the watch of racks shows %q", got)
	}
	h.openAPI()
	h.roles()
}

// codeBlocks returns the page's code blocks by language.
func codeBlocks(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}
	return blocks
}

// sources copies the program's sources and adds the kind's file and its registration.
func sources(t *testing.T, file, registration string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, part := range []string{"client", "cmd", "internal", "docs/reference", "docs/examples"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(root, part))); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(root + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, root+"/go.mod", root+"/go.sum") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, filepath.Base(name)), string(text))
	}
	kinds, err := os.ReadFile(filepath.Join(dir, "kinds.go"))
	if err != nil {
		t.Fatal(err)
	}
	const list = "var Kinds = []KindInfo{\n"
	write(t, filepath.Join(dir, "rack.go"), file)
	write(t, filepath.Join(dir, "kinds.go"), strings.Replace(string(kinds), list, list+registration, 1))
	return dir
}

// build builds trivet from a directory of sources.
func build(t *testing.T, sources string) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "trivet")
	goCommand(t, sources, "build", "-o", binary, "./cmd/trivet")
	return binary
}

// reference writes the reference of records, as make docs does, and checks that it has the kind.
func reference(t *testing.T, sources string) {
	t.Helper()
	t.Setenv("UPDATE", "1")
	goCommand(t, sources, "test", "-count", "1", "-run", "^TestReferenceRecords$", "./internal/docsgen")
	page, err := os.ReadFile(filepath.Join(sources, "docs/reference/records.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| [Rack](#rack) | `racks` | `r` | cluster | viewer | operator |",
		"| `spec.row` | string | Where the cabinet is. |",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the reference of records lacks %q", want)
		}
	}
}

func goCommand(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", args[0], err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// head is a running head of the new binary.
type head struct {
	*testing.T
	binary, dir string
	context     client.Context
	client      *client.Client
}

func startHead(t *testing.T, binary string) *head {
	t.Helper()
	h := &head{T: t, binary: binary, dir: t.TempDir()}
	cmd := exec.Command(binary, "server", "--data-dir", h.data(), "--advertise", "127.0.0.1",
		"--api", "127.0.0.1:0", "--boot", "127.0.0.1:0", "--tftp", "")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready, ended := make(chan struct{}), make(chan struct{})
	var text strings.Builder
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(io.TeeReader(log, &text)); lines.Scan(); {
			if strings.Contains(lines.Text(), "msg=ready") {
				close(ready)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		_ = cmd.Wait() // killed
		if t.Failed() {
			t.Logf("log of the head:\n%s", &text)
		}
	})
	select {
	case <-ready:
	case <-ended:
		t.Fatal("the head ended")
	case <-time.After(timeout):
		t.Fatal("the head is not ready")
	}
	h.connect()
	return h
}

func (h *head) data() string { return filepath.Join(h.dir, "data") }

func (h *head) connect() {
	h.Helper()
	f, err := client.ReadFile(filepath.Join(h.data(), "admin.yaml"))
	if err != nil {
		h.Fatal(err)
	}
	if h.context, err = f.Pick(""); err != nil {
		h.Fatal(err)
	}
	h.client, err = client.New(client.Config{Endpoints: h.context.Endpoints, Trust: h.context.Trust,
		Token: h.context.Token})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(h.client.Close)
}

// session runs the commands of a console block, and compares their output. "..." in it matches any text.
func (h *head) session(console string) {
	h.Helper()
	for part := range strings.SplitSeq(strings.TrimPrefix(console, "$ "), "\n$ ") {
		command, want, _ := strings.Cut(part, "\n")
		want = regexp.QuoteMeta(strings.TrimSpace(want))
		want = regexp.MustCompile(` +`).ReplaceAllString(want, " +")
		want = "(?s)^" + strings.ReplaceAll(want, regexp.QuoteMeta("..."), ".*") + "$"
		got, _ := h.trivet(strings.Fields(command)[1:]...)
		if !regexp.MustCompile(want).MatchString(strings.TrimSpace(got)) {
			h.Errorf("$ %s\n%s\ndoes not match %s", command, got, want)
		}
	}
}

// trivet runs a command of the new binary.
func (h *head) trivet(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.Context(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+filepath.Join(h.data(), "admin.yaml"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// watch follows the racks with the command line, and returns what waits for the second change.
func (h *head) watch() (changes func() string) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), timeout)
	cmd := exec.CommandContext(ctx, h.binary, "watch", "racks", "-o", "json")
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+filepath.Join(h.data(), "admin.yaml"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // cancelled
	})
	events := json.NewDecoder(out)
	type event struct {
		Type client.EventType
		Name string
	}
	next := func() (e event) {
		if err := events.Decode(&e); err != nil {
			h.Fatal("watch racks: ", err)
		}
		return e
	}
	for next().Type != client.Synced {
	}
	return func() string {
		first, second := next(), next()
		return string(first.Type) + " " + first.Name + ", " + string(second.Type) + " " + second.Name
	}
}

// openAPI checks that the served document has the kind's operations and type.
func (h *head) openAPI() {
	h.Helper()
	var doc struct {
		Paths      map[string]any
		Components struct{ Schemas map[string]any }
	}
	h.get("/openapi.json", &doc)
	for _, path := range []string{"/v1/racks", "/v1/racks/{name}"} {
		if doc.Paths[path] == nil {
			h.Errorf("openapi.json lacks %s", path)
		}
	}
	for _, schema := range []string{"Rack", "RackSpec", "RackStatus"} {
		if doc.Components.Schemas[schema] == nil {
			h.Errorf("openapi.json lacks the schema %s", schema)
		}
	}
}

// roles checks the default authorization: viewers read, operators write.
func (h *head) roles() {
	h.Helper()
	accounts := client.Of[trivet.Account](h.client)
	for role, allowed := range map[trivet.AccountRole]bool{trivet.AccountViewer: false, trivet.AccountOperator: true} {
		account := &trivet.Account{Meta: trivet.Meta{Name: string(role)}, Spec: trivet.AccountSpec{Role: role}}
		if _, err := accounts.Create(h.Context(), account); err != nil {
			h.Fatal(err)
		}
		issued, err := h.client.IssueToken(h.Context(), trivet.TokenRequest{Account: account.Name})
		if err != nil {
			h.Fatal(err)
		}
		h.Setenv("TRIVET_TOKEN", issued.Token)
		if out, err := h.trivet("get", "racks"); err != nil {
			h.Errorf("get racks by a %s: %v\n%s", role, err, out)
		}
		if out, err := h.trivet("apply", "-f", "rack.yaml"); (err == nil) != allowed {
			h.Errorf("apply by a %s: %v\n%s", role, err, out)
		}
	}
}

// get reads JSON from the head's API.
func (h *head) get(path string, out any) {
	h.Helper()
	trust, err := client.TLSConfig(h.context.Trust)
	if err != nil {
		h.Fatal(err)
	}
	req, err := http.NewRequestWithContext(h.Context(), http.MethodGet, h.context.Endpoints[0]+path, nil)
	if err != nil {
		h.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.context.Token)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true}, Timeout: timeout}
	defer web.CloseIdleConnections()
	resp, err := web.Do(req)
	if err != nil {
		h.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		h.Fatal(err)
	}
}
