package head_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// rawAPI is an HTTP client that trusts the head, for requests that the project's own client would not send.
func (h *head) rawAPI() *http.Client {
	h.Helper()
	cfg, err := client.TLSConfig(h.Credential().Trust)
	if err != nil {
		h.Fatal(err)
	}
	cfg.NextProtos = []string{"http/1.1"}
	transport := &http.Transport{TLSClientConfig: cfg, ExpectContinueTimeout: timeout,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	h.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// request returns a request of the administrator.
func (h *head) request(ctx context.Context, method, path string, body io.Reader) *http.Request {
	h.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "https://"+h.Address+":7480"+path, body)
	if err != nil {
		h.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+h.Credential().Token)
	return req
}

// openWatch opens a feed and returns what it sends.
func (h *head) openWatch() *testhead.Log {
	h.Helper()
	resp, err := h.rawAPI().Do(h.request(h.Context(), "GET", "/v1/watch?kinds=machines", nil))
	if err != nil || resp.StatusCode != http.StatusOK {
		h.Fatalf("watch: %v, %v", resp, err)
	}
	feed := testhead.NewLog()
	go func() {
		defer resp.Body.Close()
		_, err := io.Copy(feed, resp.Body)
		fmt.Fprintf(feed, "ended with error %v", err)
		feed.End()
	}()
	if !feed.Await("event: synced", timeout) {
		h.Fatalf("the watch sent: %s", feed)
	}
	return feed
}

// slowUpload is an upload that the head is reading.
type slowUpload struct {
	body   *io.PipeWriter
	status chan string
}

func (h *head) openUpload() *slowUpload {
	h.Helper()
	read, write := io.Pipe()
	began := make(chan struct{})
	ctx := httptrace.WithClientTrace(h.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(began) }})
	req := h.request(ctx, "POST", "/v1/blobs", read)
	req.Header.Set("Expect", "100-continue") // the head answers 100 when it begins to read
	u := &slowUpload{body: write, status: make(chan string, 1)}
	c := h.rawAPI()
	go func() {
		resp, err := c.Do(req)
		if err != nil {
			u.status <- err.Error()
			return
		}
		resp.Body.Close()
		u.status <- resp.Status
	}()
	<-began
	if _, err := write.Write([]byte("the first half, ")); err != nil {
		h.Fatal(err)
	}
	return u
}

// SIGTERM ends a head in order: watches receive a drain event, a request under way is answered, what was acknowledged
// is kept.
func TestTerm(t *testing.T) {
	h := newHead(t)
	h.mustServe()
	watch, upload, before := h.openWatch(), h.openUpload(), len(h.Log.String())
	h.Signal(syscall.SIGTERM)
	if !watch.Await("event: drain", timeout) || !watch.Await("ended with error <nil>", timeout) {
		t.Errorf("the watch did not end in order: %s", watch)
	}
	if _, err := io.WriteString(upload.body, "the second half"); err != nil {
		t.Error(err)
	}
	upload.body.Close()
	if status := <-upload.status; !strings.HasPrefix(status, "201") {
		t.Errorf("the upload under way: %s", status)
	}
	if status := h.AwaitExit(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	if strings.Contains(h.Log.String()[before:], "level=ERROR") {
		t.Errorf("an orderly end is no error:\n%s", h.Log)
	}
	startHead(t, h.Dir).mustServe()
}

// A second signal ends a head that still waits for a request, immediately and not with 0, as if its power was cut.
func TestSecondSignal(t *testing.T) {
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			h := newHead(t)
			watch, upload := h.openWatch(), h.openUpload()
			defer upload.body.Close()
			h.Signal(syscall.SIGTERM)
			if !watch.Await("event: drain", timeout) {
				t.Fatalf("the watch did not end in order: %s", watch)
			}
			h.Signal(second)
			if status := h.AwaitExit(); status != 128+int(second) {
				t.Errorf("exit status %d, want %d", status, 128+int(second))
			}
			startHead(t, h.Dir).mustServe()
		})
	}
}

// A signal while a head starts ends it in order, whatever step it is at.
func TestTermAtStart(t *testing.T) {
	h := launch(t, filepath.Join(t.TempDir(), "data"), testhead.NewAddress())
	h.Log.Await("level=", timeout) // its first line
	h.Signal(syscall.SIGTERM)
	if status := h.AwaitExit(); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
	h = startHead(t, h.Dir)
	h.Apply(site)
	h.mustServe()
}

// command is an operator command that runs.
type command struct {
	*testing.T
	*testhead.Process
}

func startCommand(t *testing.T, env []string, args ...string) *command {
	t.Helper()
	cmd := testhead.Command("", testhead.Program(t), args...)
	cmd.Env = append(os.Environ(), env...)
	p, err := testhead.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return &command{t, p}
}

func (h *head) start(args ...string) *command {
	h.Helper()
	return startCommand(h.T, []string{"TRIVET_CONFIG=" + h.AdminFile(), "TMPDIR=" + h.TempDir()}, args...)
}

// awaitOutput waits until the command has written a text.
func (c *command) awaitOutput(text string) {
	c.Helper()
	if !c.Log.Await(text, timeout) {
		c.Fatal(c.Log)
	}
}

// mustStop expects a command that ends by Ctrl-C with status 130 and has written these texts.
func (c *command) mustStop(texts ...string) {
	c.Helper()
	c.Signal(syscall.SIGINT)
	if err := c.Wait(timeout); err != nil {
		c.Fatal(err)
	}
	if status := c.ExitCode(); status != 130 {
		c.Errorf("exit status %d, want 130:\n%s", status, c.Log)
	}
	for _, text := range texts {
		if !c.Log.Contains(text) {
			c.Errorf("it has not written %q:\n%s", text, c.Log)
		}
	}
}

// Ctrl-C in the middle of a command prints what continues, and how to watch it again.
func TestCtrlC(t *testing.T) {
	h := newHead(t)
	t.Run("provision", func(t *testing.T) {
		h.Apply("{kind: Template, name: t1, spec: {actions: [{name: a, use: noop}]}}")
		c := h.start("provision", "web1", "--template", "t1", "--machine", "m1")
		c.awaitOutput("provision/web1 created")
		c.mustStop("provision web1 continues", "trivet provision web1 --watch")
		if out, err := h.Trivet("get", "provision", "web1"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("edit", func(t *testing.T) { // it is for the editor
		t.Setenv("VISUAL", "kill -INT $PPID; sleep 0.2; kill -INT $PPID; sleep 0.2; sed -i s/r1/r2/")
		if out, err := h.Trivet("edit", "machine", "m1"); err != nil || !strings.Contains(out.All, "machine/m1 edited") {
			t.Errorf("%v: %s", err, out)
		}
	})
	t.Run("watch", func(t *testing.T) {
		c := h.start("watch", "machines")
		c.awaitOutput("-- synced")
		c.mustStop()
	})
	t.Run("image import", func(t *testing.T) {
		from := stalledServer(t)
		c := h.start("image", "import", from.URL+"/disk.raw", "--name", "disk")
		<-from.stalled
		c.mustStop("image disk is unchanged", "run the command again")
		if out, err := h.Trivet("get", "image", "disk"); err == nil {
			t.Errorf("half an image exists: %s", out)
		}
		if left, err := filepath.Glob(filepath.Join(h.Dir, "blobs", "*.upload")); err != nil || len(left) > 0 {
			t.Errorf("%v is left behind, %v", left, err)
		}
	})
	h.mustServe()
}

// stalledServer sends the first part of a disk, and then nothing.
type stalled struct {
	*httptest.Server
	stalled chan struct{}
}

func stalledServer(t *testing.T) *stalled {
	s := &stalled{stalled: make(chan struct{})}
	disk := bytes.Repeat([]byte{1}, 8<<20)
	disk[510], disk[511] = 0x55, 0xaa
	once := sync.OnceFunc(func() { close(s.stalled) })
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" { // a look at a part of it
			http.ServeContent(w, r, "disk.raw", fixedTime, bytes.NewReader(disk))
			return
		}
		w.Header().Set("Accept-Ranges", "bytes")
		w.Header().Set("Content-Length", fmt.Sprint(len(disk)))
		_, _ = w.Write(disk[:len(disk)/2]) // the client may have disconnected: that is tested
		_ = http.NewResponseController(w).Flush()
		once()
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s
}

// Ctrl-C ends a demo in order and leaves no files behind.
func TestCtrlCDemo(t *testing.T) {
	tmp := t.TempDir()
	c := startCommand(t, []string{"TMPDIR=" + tmp}, "demo", "--machines", "500")
	c.awaitOutput("█")
	c.mustStop()
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
}

// The log says that the head stops, and that it has stopped.
func TestStopIsLogged(t *testing.T) {
	h := newHead(t)
	h.Stop()
	if text := h.Log.String(); !strings.Contains(text, "msg=stopping") ||
		strings.Index(text, "msg=stopped") < strings.Index(text, "msg=stopping") {
		t.Errorf("the log lacks its stop:\n%s", text)
	}
}
