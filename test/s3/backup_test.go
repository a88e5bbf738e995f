package s3_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

const timeout = 2 * time.Minute // longer than a lock of a command that was killed

// site is a head, and a server for its backups.
type site struct {
	*testing.T
	*server
	head    *testhead.Head
	keyFile string
}

const location = "s3://" + bucketName + "/site/one"

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, server: newServer(t), head: testhead.NewHead(t, "head0"),
		keyFile: filepath.Join(t.TempDir(), "recovery.key")}
	s.head.Up()
	s.write(s.keyFile, []byte(s.head.MustTrivet("backup", "key", "--yes")))
	return s
}

func (s *site) write(path string, text []byte) {
	s.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.Fatal(err)
	}
}

// importImage imports an image of several parts.
func (s *site) importImage(name string) {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	s.write(path, append([]byte(name), content(40*mib)...))
	s.head.MustTrivet("image", "import", path, "--name", name, "--format", "raw")
}

// command returns a command with the endpoint of a server, and more variables of the environment.
func (s *site) command(endpoint string, env []string, args ...string) *exec.Cmd {
	cmd := testhead.Command("", testhead.Program(s.T), append(args, "--s3-endpoint", endpoint)...)
	cmd.Env = append(append(os.Environ(), "TRIVET_CONFIG="+s.head.AdminFile()), env...)
	return cmd
}

func (s *site) run(env []string, args ...string) (testhead.Result, error) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	defer cancel()
	r, err := testhead.CLI(ctx, s.command(s.url(), env, args...), s.head.AdminFile())
	if strings.Contains(r.All, secretKey) {
		s.Errorf("the secret is in the output: %s", r.All)
	}
	return r, err
}

func (s *site) must(args ...string) string {
	s.Helper()
	r, err := s.run(nil, args...)
	if err != nil {
		s.Fatal(err)
	}
	return r.Stdout
}

// refused expects that a command fails, and that its output has these texts.
func (s *site) refused(texts []string, env []string, args ...string) {
	s.Helper()
	r, err := s.run(env, args...)
	for _, text := range texts {
		if err == nil || !strings.Contains(r.All, text) {
			s.Errorf("%s: %v; want %q:\n%s", strings.Join(args, " "), err, text, r.All)
		}
	}
}

type listed struct {
	Name, State   string
	Copied, Blobs int
}

// create makes a backup with the contents of blobs.
func (s *site) create() (c listed) {
	s.Helper()
	text := s.must("backup", "create", "--to", location, "--blobs", "-o", "json")
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		s.Fatal(err)
	}
	return c
}

func (s *site) list() (all []listed) {
	s.Helper()
	if err := json.Unmarshal([]byte(s.must("backup", "list", "--in", location, "-o", "json")), &all); err != nil {
		s.Fatal(err)
	}
	return all
}

func (s *site) expectBackups(names ...string) {
	s.Helper()
	var got []string
	for _, b := range s.list() {
		got = append(got, b.Name)
		if b.State != "complete" {
			s.Errorf("%s is %s", b.Name, b.State)
		}
	}
	if slices.Sort(got); !slices.Equal(got, names) {
		s.Errorf("listed %q, want %q", got, names)
	}
}

// blobs returns how many contents are in the bucket.
func (s *site) blobs() int {
	s.Helper()
	all, err := os.ReadDir(filepath.Join(s.dir, "site", "one", "blobs"))
	if err != nil {
		s.Fatal(err)
	}
	return len(all)
}

// Backups in a bucket: contents are shared, a command that is interrupted or killed leaves none, what it left is
// removed, and a lost cluster is recovered.
func TestBackupsInABucket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.importImage("i1")
	first := s.create()
	if first.Copied != 1 || first.Blobs != 1 {
		t.Errorf("created %+v", first)
	}
	s.importImage("i2")
	second := s.create()
	if second.Copied != 1 || second.Blobs != 2 || s.blobs() != 2 {
		t.Errorf("created %+v, %d blobs are there", second, s.blobs())
	}
	s.expectBackups(first.Name, second.Name)
	if out := s.must("backup", "verify", location+"/"+second.Name, "--key", s.keyFile); !strings.Contains(out,
		"contents of 2 of 2 blobs read\nit can be restored") {
		t.Errorf("verified: %s", out)
	}

	s.importImage("i3")
	s.stopInTheMiddle(syscall.SIGINT, "interrupted; there is no new backup in "+location)
	s.expectNoUploads()
	s.stopInTheMiddle(syscall.SIGKILL, "")
	if len(s.parts()) == 0 {
		t.Error("no part is left: nothing was tested")
	}
	s.expectBackups(first.Name, second.Name)
	third := s.create()
	s.expectNoUploads()
	s.expectBackups(first.Name, second.Name, third.Name)

	s.head.MustTrivet("delete", "image", "i1")
	fourth := s.create()
	s.must("backup", "prune", "--in", location, "--keep", "2")
	s.expectBackups(third.Name, fourth.Name)
	if n := s.blobs(); n != 3 {
		t.Errorf("%d blobs are left, and the backups have 3", n)
	}
	s.must("backup", "prune", "--in", location, "--keep", "1")
	if n := s.blobs(); n != 2 {
		t.Errorf("%d blobs are left, and the backup has 2", n)
	}

	s.head.Kill()
	data := filepath.Join(t.TempDir(), "data")
	out := s.must("recover", "--from-backup", location, "--key", s.keyFile, "--data-dir", data, "--yes")
	if !strings.Contains(out, "start it: trivet server --data-dir "+data) {
		t.Errorf("recovered: %s", out)
	}
	got, err := filepath.Glob(filepath.Join(data, "blobs", strings.Repeat("?", 64)))
	if err != nil || len(got) != 2 {
		t.Errorf("recovered %q, %v", got, err)
	}
}

// stopInTheMiddle stops a backup when it has sent a part of a blob.
func (s *site) stopInTheMiddle(signal syscall.Signal, want string) {
	s.Helper()
	ended := make(chan struct{})
	defer close(ended)
	front := s.proxy(func(r *http.Request) {
		if r.URL.Query().Get("partNumber") == "2" {
			<-ended
		}
	}, nil)
	cmd := s.command(front, nil, "backup", "create", "--to", location, "--blobs")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := testhead.Start(cmd)
	if err != nil {
		s.Fatal(err)
	}
	if err := p.Await(func() bool { return len(s.parts()) > 0 }, timeout); err != nil {
		s.Fatalf("%v: %s", err, &out)
	}
	p.Signal(signal)
	if err := p.Wait(timeout); err != nil {
		s.Fatal(err)
	}
	if !strings.Contains(out.String(), want) {
		s.Errorf("%s: want %q: %s", signal, want, &out)
	}
}

// Whatever is wrong has an error of its own, which says what to do, and has no secret.
func TestErrors(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.importImage("i1")
	name := s.create().Name
	ls := []string{"backup", "list", "--in", location}
	create := []string{"backup", "create", "--to", location}
	verify := []string{"backup", "verify", location + "/" + name, "--key", s.keyFile}
	home := t.TempDir()
	none := []string{"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "HOME=" + home}
	s.refused([]string{"unauthenticated", "check AWS_SECRET_ACCESS_KEY"}, []string{"AWS_SECRET_ACCESS_KEY=wrong"},
		ls...)
	s.refused([]string{"unauthenticated", "check AWS_ACCESS_KEY_ID"}, []string{"AWS_ACCESS_KEY_ID=wrong"}, create...)
	s.addUser("another", "secret-of-another")
	s.refused([]string{"forbidden", "allow it s3:ListBucket"}, []string{"AWS_ACCESS_KEY_ID=another",
		"AWS_SECRET_ACCESS_KEY=secret-of-another"}, create...)
	s.refused([]string{"only one of AWS_ACCESS_KEY_ID"}, []string{"AWS_ACCESS_KEY_ID="}, ls...)
	s.refused([]string{"there are no credentials", "set AWS_ACCESS_KEY_ID"}, none, verify...)
	s.refused([]string{"not found", "create the bucket, or correct its name"}, nil, "backup", "create", "--to",
		"s3://nonesuch/x")
	s.refused([]string{"not found", "create the bucket"}, nil, "backup", "list", "--in", "s3://nonesuch")
	s.refused([]string{"is not valid", "s3://BUCKET/PREFIX"}, nil, "backup", "list", "--in", "s3://No_Bucket/x")
	s.refused([]string{"not found", "check the path"}, nil, "backup", "verify", location+"/c1-x.backup", "--key",
		s.keyFile)
	s.refused([]string{"it is not a backup", "NAME.backup"}, nil, "backup", "verify", location+"/x", "--key", s.keyFile)
	s.refused([]string{"no complete backup", "trivet backup list --in s3://backups/empty"}, nil, "recover",
		"--from-backup", "s3://backups/empty", "--key", s.keyFile, "--data-dir", t.TempDir(), "--yes")

	credentials := filepath.Join(home, ".aws", "credentials")
	if err := os.Mkdir(filepath.Dir(credentials), 0o700); err != nil {
		t.Fatal(err)
	}
	s.write(credentials, []byte("[default]\n"+secretKey+"\n"))
	s.refused([]string{"there are no credentials"}, none, ls...)
	s.write(credentials, []byte("[default]\naws_access_key_id = "+accessKey+"\naws_secret_access_key = "+secretKey))
	if r, err := s.run(none, ls...); err != nil || !strings.Contains(r.All, name) {
		t.Errorf("with a file of credentials: %v, %s", err, r.All)
	}

	path := filepath.Join(s.dir, "site", "one", name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := slices.Clone(whole)
	changed[len(changed)-100] ^= 1
	s.change(path, whole[:len(whole)-9])
	s.refused([]string{"it is truncated", "use another backup"}, nil, verify...)
	if all := s.list(); len(all) != 1 || all[0].State != "damaged" {
		t.Errorf("listed %+v", all)
	}
	s.change(path, changed)
	s.refused([]string{"it is damaged or was changed", "use another backup"}, nil, verify...)
	s.change(path, whole)
	blobs, err := filepath.Glob(filepath.Join(s.dir, "site", "one", "blobs", "*"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("blobs %q, %v", blobs, err)
	}
	blob, err := os.ReadFile(blobs[0])
	if err != nil {
		t.Fatal(err)
	}
	blob[30*mib] ^= 1
	s.change(blobs[0], blob)
	s.refused([]string{"problem: the content of blob sha256:", "1 problems"}, nil, verify...)

	front := s.proxy(func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, name) {
			r.URL.Host = "127.0.0.1:1" // where nothing is
		}
	}, nil)
	fresh := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{ls, verify, {"recover", "--from-backup", location, "--key", s.keyFile, "--data-dir",
		fresh, "--yes"}} { // what cannot be read is not damaged, and no reason to use another one
		r, err := testhead.CLI(t.Context(), s.command(front, nil, args...), s.head.AdminFile())
		if err == nil || !strings.Contains(r.All, "unavailable: the S3 server") {
			t.Errorf("%s: %v, %s", strings.Join(args, " "), err, r.All)
		}
	}

	s.Kill()
	for _, args := range [][]string{ls, create, verify} {
		s.refused([]string{"the S3 server: ", "check that it runs, and its endpoint"}, nil, args...)
	}
}

// change changes what is in an object, whose attributes are those of its file.
func (s *site) change(path string, text []byte) {
	s.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		s.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		s.Fatal(err)
	}
}
