// Package s3_test runs the commands for backups against a real S3 server, versitygw, on loopback.
package s3_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/bucket"
	"github.com/trivet-project/trivet/internal/testhead"
)

const accessKey, secretKey = "trivet", "a-secret-of-the-tests"

// TestMain sets the credentials of this process and of the commands that it runs.
func TestMain(m *testing.M) {
	for _, name := range []string{"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_ENDPOINT_URL",
		"AWS_CA_BUNDLE"} {
		os.Unsetenv(name)
	}
	os.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
	os.Exit(m.Run())
}

// server is an S3 server with a bucket, whose objects are files.
type server struct {
	*testhead.Process
	t    testing.TB
	dir  string // of the bucket
	root string
	iam  string // accounts
	addr string // of its own: no other program takes its port while it is down
}

const bucketName = "backups"

func newServer(t testing.TB) *server {
	t.Helper()
	s := &server{t: t, root: t.TempDir(), iam: t.TempDir(), addr: testhead.NewAddress() + ":7070"}
	s.dir = filepath.Join(s.root, bucketName)
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.start()
	return s
}

// start starts the server, again where it was killed.
func (s *server) start() {
	s.t.Helper()
	cmd := exec.Command(s.program(), "--port", s.addr, "--quiet", "--iam-dir", s.iam, "posix",
		s.root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+accessKey, "ROOT_SECRET_ACCESS_KEY="+secretKey)
	var err error
	if s.Process, err = testhead.Start(cmd); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.Kill)
	err = s.Await(func() bool {
		c, err := net.Dial("tcp", s.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, time.Minute)
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) program() string {
	s.t.Helper()
	path := filepath.Join(filepath.Dir(testhead.Program(s.t)), "versitygw")
	if _, err := os.Stat(path); err != nil {
		s.t.Fatalf("%v: run make bin/versitygw", err)
	}
	return path
}

// addUser adds an account that may not use the bucket.
func (s *server) addUser(access, secret string) {
	s.t.Helper()
	cmd := exec.Command(s.program(), "admin", "--endpoint-url", s.url(), "create-user", "--access", access, "--secret",
		secret, "--role", "user")
	cmd.Env = append(os.Environ(), "ADMIN_ACCESS_KEY_ID="+accessKey, "ADMIN_SECRET_ACCESS_KEY="+secretKey)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

func (s *server) url() string { return "http://" + s.addr }

// open returns what is at a prefix of the bucket.
func (s *server) open(prefix string) *bucket.Bucket {
	s.t.Helper()
	return openAt(s.t, s.url(), prefix)
}

func openAt(t testing.TB, endpoint, prefix string) *bucket.Bucket {
	t.Helper()
	b, err := bucket.Open("s3://"+bucketName+"/"+prefix, bucket.Config{Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// proxy returns the URL of a proxy before the server, which may change a request and the body of its response.
func (s *server) proxy(change func(*http.Request), response func(*http.Response) io.Reader) string {
	s.t.Helper()
	target, err := url.Parse(s.url())
	if err != nil {
		s.t.Fatal(err)
	}
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
			if change != nil {
				change(r.Out)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if response != nil {
				resp.Body = struct {
					io.Reader
					io.Closer
				}{response(resp), resp.Body}
			}
			return nil
		},
	}
	front := httptest.NewServer(p)
	s.t.Cleanup(front.Close)
	return front.URL
}
