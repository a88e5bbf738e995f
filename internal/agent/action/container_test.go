package action

import (
	"bytes"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trivet-project/trivet"
)

// toolImage is a container image of two layers around the tests' program. The second layer removes something
// of the first.
func toolImage(t testing.TB) v1.Image {
	t.Helper()
	prog, err := tool()
	must(t, err)
	img := empty.Image
	for _, content := range [][]byte{
		files(t, [2]string{"bin/tool", string(prog)}, [2]string{"gone", "x"}, [2]string{"old/a", "x"},
			[2]string{"old/b", "x"},
			[2]string{"etc/passwd", "admin:x:1000:1001::/:/bin/sh\n"}, [2]string{"lib", "->usr/lib"}),
		files(t, [2]string{".wh.gone", ""}, [2]string{"old/.wh..wh..opq", ""}, [2]string{"old/c", "x"},
			[2]string{"lib/new", "x"}),
	} {
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(content)), nil
		})
		must(t, err)
		img, err = mutate.AppendLayers(img, layer)
		must(t, err)
	}
	file, err := img.ConfigFile()
	must(t, err)
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config = v1.Config{Entrypoint: []string{"/bin/tool"}, Cmd: []string{"default"},
		Env:        []string{"FROM=image", "COLOUR=red"},
		WorkingDir: "/old", User: "admin"}
	img, err = mutate.ConfigFile(img, file)
	must(t, err)
	return img
}

// toolLayout is the same as a tar of an OCI layout.
func toolLayout(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	l, err := layout.Write(dir, empty.Index)
	must(t, err)
	must(t, l.AppendImage(toolImage(t), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})))
	var list [][2]string
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		list = append(list, [2]string{strings.TrimPrefix(path, dir+"/"), string(content)})
		return err
	}))
	return files(t, list...)
}

func (b *bench) wantOutput(lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+b.log.String(), "\n"+line+"\n") {
			b.t.Errorf("no line %q in the output:\n%s", line, b.log.String())
		}
	}
}

func TestContainerOfAnImage(t *testing.T) {
	b := installed(t)
	b.add("tool", "oci", "zstd", pack(t, toolLayout(t)))
	with := func(with map[string]any) map[string]any { with["image"] = "tool"; return with }
	b.do("container", with(map[string]any{}))
	b.wantOutput("args default", "pid 1 uid 1000 gid 1001 dir /old host m1", "env COLOUR=red", "env FROM=image",
		"/ bin dev etc lib old proc sys usr", "/dev fd full null ptmx pts random shm "+
			"stderr stdin stdout tty urandom zero")
	b.do("container", with(map[string]any{"args": []any{"x", "y"}, "env": map[string]any{"COLOUR": "blue"},
		"mount":   "/target",
		"devices": true}))
	b.wantOutput("args x y", "env COLOUR=blue", "/target away bin boot etc lost+found tmp vmlinuz")
	b.do("container", with(map[string]any{"command": []any{"/bin/tool", "only"}}))
	b.wantOutput("args only")
	b.fail("container", with(map[string]any{"args": []any{"exit", "3"}}), trivet.FaultConfiguration, false,
		"exit status 3: about to fail")
	b.fail("container", with(map[string]any{"command": []any{"/gone"}}), trivet.FaultConfiguration, true, "/gone")
	left, err := os.ReadDir(b.env.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestContainerThatHangsIsKilledWhole(t *testing.T) {
	b := onFile(t, 1<<20)
	b.add("tool", "oci", "", toolLayout(t))
	b.killed("container", map[string]any{"image": "tool", "args": []any{"hang"}})
	wantNothingLeft(t, b.env.Dir)
}

func TestContainerOfARegistry(t *testing.T) {
	quiet := registry.Logger(log.New(io.Discard, "", 0))
	plain := httptest.NewServer(registry.New(quiet))
	defer plain.Close()
	secure := httptest.NewUnstartedServer(registry.New(quiet))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	img := toolImage(t)
	for _, s := range []*httptest.Server{plain, secure} {
		host := s.Listener.Addr().String()
		ref, err := name.ParseReference(host + "/tools/tool:1")
		must(t, err)
		must(t, remote.Write(ref, img, remote.WithTransport(s.Client().Transport)))
	}
	digest, err := img.Digest()
	must(t, err)
	at := "@" + digest.String()
	b := onFile(t, 1<<20)
	for _, with := range []map[string]any{
		{"ref": plain.Listener.Addr().String() + "/tools/tool" + at, "plainHTTP": true},
		{"ref": secure.Listener.Addr().String() + "/tools/tool" + at, "ca": ca},
	} {
		b.do("container", with)
		b.wantOutput("args default")
	}
	host := plain.Listener.Addr().String()
	b.fail("container", map[string]any{"ref": host + "/tools/none" + at, "plainHTTP": true}, trivet.FaultConfiguration,
		true, "not found")
	b.fail("container", map[string]any{"ref": host + "/UPPER" + at, "plainHTTP": true}, trivet.FaultConfiguration, true,
		"invalid")
	b.fail("container", map[string]any{"ref": "a/b" + at, "ca": "no certificate"}, trivet.FaultConfiguration, true, "CA")
	b.fail("container", map[string]any{"ref": secure.Listener.Addr().String() + "/tools/tool" + at}, trivet.FaultNetwork,
		false, "certificate")
	plain.Close()
	b.fail("container", map[string]any{"ref": host + "/tools/tool" + at, "plainHTTP": true}, trivet.FaultNetwork, false,
		"refused")
}

func TestInvalidContainers(t *testing.T) {
	b := onFile(t, 1<<20)
	b.add("empty", "oci", "", files(t, [2]string{"index.json", "{}"}))
	b.add("junk", "oci", "", files(t, [2]string{"index.json", "junk"}))
	good := toolLayout(t)
	// the configuration no longer has its digest
	bad := bytes.Replace(good, []byte(`"/bin/tool"`), []byte(`"/bin/fool"`), 1)
	b.add("bad", "oci", "", bad)
	for name, text := range map[string]string{"empty": "no image for linux", "junk": "OCI layout",
		"bad": "configuration has the digest"} {
		b.fail("container", map[string]any{"image": name}, trivet.FaultImage, true, text)
	}
}
