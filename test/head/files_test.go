package head_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/trivet-project/trivet/internal/testhead"
)

// mustFail expects an operator command that fails with status 1, writes these texts, and uses little memory.
func (h *head) mustFail(t *testing.T, args []string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
	defer cancel()
	// A limit and not its peak afterwards: the kernel counts into that of a new process what the one that starts it
	// had.
	limit := fmt.Sprintf("--data=%d", maxMemory)
	cmd := exec.CommandContext(ctx, "prlimit", append([]string{limit, testhead.Program(t)}, args...)...)
	cmd.Env = append(os.Environ(), "TRIVET_CONFIG="+h.AdminFile())
	out, _ := cmd.CombinedOutput() // its status is checked; Go ends with 2 when it gets no memory
	if status := cmd.ProcessState.ExitCode(); status != 1 {
		t.Errorf("exit status %d, want 1", status)
	}
	mustAnswer(t, string(out), words...)
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bad file of records is refused with what is wrong, and without much work.
func TestBadFiles(t *testing.T) {
	h := newHead(t)
	action := func(with string) string {
		return "kind: Template\nname: t\nspec: {actions: [{name: a, use: command, with: {args: ['" + with + "']}}]}\n"
	}
	long := func(text string, n int) string { return strings.Repeat(text, n) }
	for _, c := range []struct {
		what, text string
		words      []string
	}{
		{"aliases that grow", "kind: Machine\nname: x\nlabels:\n" +
			"  a: &a [x,x,x,x,x,x,x,x,x,x]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n" +
			"  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n" +
			"  e: [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n", []string{"apply.yaml:", "too large or nested too deep"}},
		{"long texts behind aliases", "a: &a " + long("x", 1<<20) + "\nb: [" + long("*a,", 5000) + "]\n",
			[]string{"too large"}},
		{"an alias of itself", "kind: Machine\nname: x\nlabels: &a {x: *a}\n", []string{"apply.yaml:3"}},
		{"long name with a long list", long("k", 1<<20) + ":\n" + long(" - x\n", 90_000),
			[]string{"too large or nested too deep"}},
		{"100 MB in a field", "kind: Machine\nname: x\nspec: {serial: " + long("x", 100<<20) + "}\n",
			[]string{"too large", "more than 16.0 MiB"}},
		{"2 MB in a field", "kind: Machine\nname: x\nspec: {serial: " + long("x", 2<<20) + "}\n",
			[]string{"apply.yaml:3", "serial"}},
		{"deep lists", "a: " + long("[", 100_000), []string{"apply.yaml:1", "too deep"}},
		{"deep objects", "a: " + long("{a: ", 100_000), []string{"apply.yaml:1", "too deep"}},
		{"deep lines", long("- ", 100_000) + "x", []string{"apply.yaml:1", "too deep"}},
		{"tab", "kind: Machine\nname: x\nspec:\n\tarch: amd64\n", []string{"apply.yaml:4", "tab"}},
		{"twice", "kind: Machine\nname: x\nname: y\n", []string{"apply.yaml:3", "name"}},
		{"NUL", "kind: Machine\nname: \"a\\0b\"\n", []string{"apply.yaml:2", "name"}},
		{"no text", "\xff\xfe\x00\x01", []string{"apply.yaml", "text"}},
		{"a program", "\x7fELF\x02\x01\x01\x00\x00", []string{"apply.yaml:1", "the file is binary, not a text"}},
		{"a path as a name", "kind: Machine\nname: ../../etc/passwd\n", []string{"apply.yaml:2", "name"}},
		{"nothing", "", []string{"no record"}},
		{"a number as a name", "kind: Machine\nname: 7\n", []string{"apply.yaml:2", "put it in quotes"}},
		{"texts that loop", action("{{range 1000000000}}x{{end}}"), []string{"apply.yaml:3", "ranges over"}},
		{"texts that call themselves", action(`{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`),
			[]string{"only plain texts"}},
		{"a variable that is not there", action("{{.Machine.Nope}}"),
			[]string{"apply.yaml:3", "uses .Machine.Nope, which does not exist"}},
		{"a parameter that is not declared", action("{{.Params.nope}}"), []string{"not a parameter of the template"}},
		{"a function that is not there", action("{{exec .Machine.Name}}"), []string{"exec"}},
		{"half a template", action("{{if .Machine.Name}}"), []string{"apply.yaml:3", "unexpected EOF"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			h.mustFail(t, []string{"apply", "-f", write(t, "apply.yaml", []byte(c.text))}, c.words...)
		})
	}
	h.mustBeUnharmed()
}

// A template that grows beyond all bounds for one machine is refused to that provision, with the reason in its record.
func TestGrowingTemplate(t *testing.T) {
	h := newHead(t)
	text := `{{$x := "0123456789"}}` + strings.Repeat(`{{$x = print $x $x}}`, 40) + `{{$x}}`
	h.Apply("kind: Template\nname: big\nspec: {actions: [{name: a, use: command, with: {args: ['" + text + "']}}]}\n")
	h.mustFail(t, []string{"provision", "p", "--template", "big", "--machine", "m1"}, "p failed",
		"more than 4194304 bytes of work")
	h.mustBeUnharmed()
}

// A bad image is reported as what it is, and leaves no record and no bytes.
func TestBadImages(t *testing.T) {
	h := newHead(t)
	raw := make([]byte, 64<<10) // what is wrong behind the first blocks is found when a machine writes it
	rand.NewChaCha8([32]byte{}).Read(raw)
	raw[510], raw[511] = 0x55, 0xaa
	packed := packedImages(t, raw)
	refuse := func(what, from string, words []string, flags ...string) {
		t.Run(what, func(t *testing.T) {
			h.mustFail(t, append([]string{"image", "import", from, "--name", "bad"}, flags...), words...)
			if out, err := h.Trivet("get", "image", "bad"); err == nil {
				t.Errorf("a record exists: %s", out)
			}
		})
	}
	refuse("empty", write(t, "a.raw", nil), []string{"a.raw", "it is empty"})
	refuse("no such file", filepath.Join(t.TempDir(), "gone"), []string{"no such file"})
	refuse("directory", t.TempDir(), []string{"is a directory", "OCI layout", "tar -C"})
	refuse("wrong digest", write(t, "a.raw", raw), []string{"invalid", "digest"},
		"--digest", "sha256:"+strings.Repeat("0", 64))
	refuse("no digest", write(t, "a.raw", raw), []string{"digest"}, "--digest", "md5:0")
	refuse("error page", write(t, "a.raw", []byte("<html><h1>404 Not Found</h1>")), []string{"an HTML page", "404"})
	refuse("text", write(t, "a.raw", []byte("Not Found\n")), []string{"a text, not a disk", "Not Found"}, "--format", "raw")
	refuse("damaged qcow2", write(t, "a.qcow2", append([]byte("QFI\xfb"), raw...)), []string{"read qcow2"})
	refuse("VMDK", write(t, "a.vmdk", append([]byte("KDMV"), raw...)), []string{"a VMDK image", "qemu-img convert"})
	for kind, whole := range packed {
		refuse("half of a "+kind, write(t, "a", whole[:len(whole)/2]), []string{kind, "cut off"})
		damaged := bytes.Clone(whole)
		for i := len(damaged) / 3; i < len(damaged)*2/3; i++ {
			damaged[i] ^= 0x5a
		}
		refuse("damaged "+kind, write(t, "a", damaged), []string{kind, "invalid"})
		refuse("first bytes of "+kind, write(t, "a", whole[:7]), []string{kind})
	}
	closing := httptest.NewServer(cutDownload(raw))
	defer closing.Close()
	refuse("download that breaks off", closing.URL+"/a.raw", []string{closing.URL})
	refuse("download that breaks off, again and again", closing.URL+"/ranges", []string{closing.URL})
	refuse("404", closing.URL+"/gone", []string{"404"})
	if left, err := os.ReadDir(filepath.Join(h.Dir, "blobs")); err != nil || len(left) > 1 {
		t.Errorf("%v is left behind, %v", left, err)
	}
	h.mustBeUnharmed()
}

// packedImages returns an image in each compression.
func packedImages(t *testing.T, raw []byte) map[string][]byte {
	t.Helper()
	packed := map[string][]byte{}
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	_, _ = gz.Write(raw)
	_ = gz.Close()
	packed["gzip"] = bytes.Clone(b.Bytes())
	b.Reset()
	enc, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = enc.Write(raw)
	_ = enc.Close()
	packed["zstd"] = bytes.Clone(b.Bytes())
	b.Reset()
	x, err := xz.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = x.Write(raw)
	_ = x.Close()
	packed["xz"] = bytes.Clone(b.Bytes())
	return packed
}

// cutDownload serves the first half of an image, with ranges or without, or nothing.
func cutDownload(raw []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/gone":
			http.NotFound(w, r)
			return
		case "/ranges":
			w.Header().Set("Accept-Ranges", "bytes")
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(raw)))
		_, _ = w.Write(raw[:len(raw)/2])
		panic(http.ErrAbortHandler) // cuts the connection
	}
}
