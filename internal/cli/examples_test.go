package cli

import (
	"archive/tar"
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/workflow"
)

const examplesDir = "../../docs/examples"

// example is a file of docs/examples.
type example struct {
	path      string
	manifests []*manifest // none: it is a list of machines
}

// readExamples returns the files of docs/examples, those with records that others refer to first.
func readExamples(t *testing.T) []example {
	t.Helper()
	paths, err := filepath.Glob(examplesDir + "/*")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	var all []example
	for _, path := range paths {
		switch filepath.Ext(path) {
		case ".csv":
			all = append(all, example{path: path})
		case ".yaml":
			manifests, err := newApp(Env{}).readManifests([]string{path})
			if err != nil {
				t.Error(err)
				continue
			}
			all = append(all, example{path, manifests})
		case ".md":
		default:
			t.Errorf("%s: what is it? This test applies *.yaml and imports *.csv", path)
		}
	}
	slices.SortStableFunc(all, func(a, b example) int { return cmp.Compare(a.depth(), b.depth()) })
	return all
}

// depth is that of its records which refer to most others.
func (e example) depth() (deepest int) {
	for _, m := range e.manifests {
		deepest = max(deepest, depth(m.info.Kind))
	}
	return deepest
}

// TestExamples applies every file of docs/examples to a head that has what they name: images and the contents of blobs.
// Nothing is refused or doubted, the second time nothing changes, and each template renders for a machine.
func TestExamples(t *testing.T) {
	h, err := startHead(t.Context(), filepath.Join(t.TempDir(), "head"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	t.Setenv("TRIVET_CONFIG", h.admin)
	s := exampleSite{examples: readExamples(t), dir: t.TempDir()}
	if s.cl, err = h.client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.cl.Close() })
	s.putContents(t)
	s.command(t, "apply", "-f", "testdata/examples/site.yaml")
	for _, e := range s.examples {
		t.Run(filepath.Base(e.path), func(t *testing.T) { s.apply(t, e) })
	}
	s.mustBeUnchanged(t, s.command(t, "apply", "-f", examplesDir)) // one file does not undo another
}

// exampleSite is a head that gets the examples.
type exampleSite struct {
	examples []example
	cl       *client.Client
	dir      string          // for images
	images   map[string]bool // that were imported
}

// apply applies an example twice.
func (s *exampleSite) apply(t *testing.T, e example) {
	if len(e.manifests) == 0 {
		list := []string{"machine", "import", e.path, "--secret", "examples"}
		if out := s.command(t, append(list, "--dry-run")...); !strings.Contains(out, " created (dry run)\n") {
			t.Error(out)
		}
		s.command(t, list...)
		s.mustBeUnchanged(t, s.command(t, list...))
		return
	}
	for _, m := range e.manifests {
		if template, ok := m.record.(*trivet.Template); ok {
			s.importImages(t, template)
		}
	}
	s.command(t, "apply", "-f", e.path, "--dry-run")
	out := s.command(t, "apply", "-f", e.path)
	for _, m := range e.manifests {
		want := m.title() + " created\n"
		if m.info.Kind == "Site" { // there is one in each cluster
			want = m.title() + " configured\n"
		}
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	s.mustBeUnchanged(t, s.command(t, "apply", "-f", e.path))
	for _, m := range e.manifests {
		if template, ok := m.record.(*trivet.Template); ok {
			s.render(t, e.path, template)
		}
	}
}

// render shows what a template does to a machine, by the values that its parameters have by default.
func (s *exampleSite) render(t *testing.T, path string, template *trivet.Template) {
	t.Helper()
	name := template.Name
	if slices.ContainsFunc(template.Spec.Actions, func(a trivet.Action) bool { return a.Use == "head" }) {
		out := s.command(t, "head", "promote", "example", "--template", name, "--plan")
		if want := "machine/example is INSTALLED as a head"; !strings.HasPrefix(out, want) {
			t.Errorf("the output does not begin with %q:\n%s", want, out)
		}
		return
	}
	out := s.command(t, "template", "test", name, "-f", path, "--machine", "example")
	if want := "Template " + name + " renders for machine example."; !strings.HasPrefix(out, want) {
		t.Errorf("the output does not begin with %q:\n%s", want, out)
	}
}

// command runs a command that succeeds without a warning.
func (s *exampleSite) command(t *testing.T, args ...string) (out string) {
	t.Helper()
	status, out, errs := trivetCommand(t.Context(), args)
	if isList := args[0] == "machine" || args[0] == "image"; status != 0 || errs != "" && !isList {
		t.Fatalf("trivet %s: status %d\n%s%s", strings.Join(args, " "), status, out, errs)
	}
	return out
}

func (s *exampleSite) mustBeUnchanged(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if !strings.HasSuffix(line, " unchanged\n") {
			t.Errorf("it is not the same the second time: %s", line)
		}
	}
}

// importImages imports the images that a template names, each of the format that its action requires.
func (s *exampleSite) importImages(t *testing.T, template *trivet.Template) {
	t.Helper()
	for _, named := range workflow.NamedImages(template, nil) {
		if s.images[named.Name] || hasRecord(s.examples, "Image", named.Name) {
			continue
		}
		use := template.Spec.Actions[named.Action].Use
		format := map[string]string{"image": "raw", "archive": "tar", "container": "oci"}[use]
		file := filepath.Join(s.dir, named.Name)
		if err := writeImage(file, format); err != nil {
			t.Fatal(err)
		}
		s.command(t, "image", "import", file, "--name", named.Name, "--format", format)
		if s.images == nil {
			s.images = map[string]bool{}
		}
		s.images[named.Name] = true
	}
}

// writeImage writes the smallest image of a format.
func writeImage(path, format string) error {
	switch format {
	case "oci":
		img, err := random.Image(1, 1)
		if err != nil {
			return err
		}
		return tarball.WriteToFile(path, name.MustParseReference("example"), img)
	case "tar":
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "etc/", Mode: 0o755}); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		return os.WriteFile(path, b.Bytes(), 0o600)
	}
	return os.WriteFile(path, make([]byte, 1<<20), 0o600)
}

// putContents uploads what the records of images and platforms refer to: the files of testdata/examples.
func (s *exampleSite) putContents(t *testing.T) {
	t.Helper()
	contents := map[string][]byte{}
	files, err := filepath.Glob("testdata/examples/*.blob")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		contents[fmt.Sprintf("sha256:%x", sha256.Sum256(text))] = text
	}
	for _, e := range s.examples {
		for _, m := range e.manifests {
			for _, ref := range blobsOf(m.record) {
				text, ok := contents[ref.Digest]
				if !ok {
					t.Errorf("%s: no file of testdata/examples has the digest %s of %s", e.path, ref.Digest, m.title())
				}
				stored, err := s.cl.PutBlob(t.Context(), bytes.NewReader(text), client.PutOptions{})
				if err != nil || ok && stored != ref {
					t.Errorf("%s: %s refers to %+v, which is stored as %+v, %v", e.path, m.title(), ref, stored, err)
				}
			}
		}
	}
}

func blobsOf(r trivet.Record) []trivet.BlobRef {
	switch r := r.(type) {
	case *trivet.Image:
		return []trivet.BlobRef{r.Spec.Blob}
	case *trivet.Platform:
		return []trivet.BlobRef{r.Spec.Kernel, r.Spec.Initrd}
	}
	return nil
}

// hasRecord reports whether an example has a record of a kind; name "": any.
func hasRecord(all []example, kind trivet.Kind, name string) bool {
	return slices.ContainsFunc(all, func(e example) bool {
		return slices.ContainsFunc(e.manifests, func(m *manifest) bool {
			return m.info.Kind == kind && (name == "" || m.record.Header().Name == name)
		})
	})
}

// Every kind that people write, every action, and every argument of an action is in an example. An argument that
// several actions share need be in one.
func TestExamplesHaveAll(t *testing.T) {
	all := readExamples(t)
	for _, info := range trivet.Kinds {
		if !info.ReadOnly && !hasRecord(all, info.Kind, "") {
			t.Errorf("no file of docs/examples has a record of kind %s", info.Kind)
		}
	}
	used := map[string]bool{}
	for _, e := range all {
		for _, m := range e.manifests {
			if template, ok := m.record.(*trivet.Template); ok {
				useActions(used, template)
			}
		}
	}
	for _, action := range actionspec.Actions() {
		if !used[action.Name] {
			t.Errorf("no file of docs/examples has an action of use %s", action.Name)
		}
		eachArgument(action, func(path string, arg actionspec.Arg) {
			if !used[argument(path, arg)] {
				t.Errorf("no file of docs/examples has the argument %s of action %s", path, action.Name)
			}
		})
	}
}

// argument identifies an argument; those that actions share have one description.
func argument(path string, arg actionspec.Arg) string {
	return path[strings.LastIndexByte(path, '.')+1:] + ": " + arg.Description
}

// useActions adds the actions of a template, and their arguments.
func useActions(used map[string]bool, template *trivet.Template) {
	known := map[string]actionspec.Doc{}
	for _, action := range actionspec.Actions() {
		known[action.Name] = action
	}
	for _, a := range template.Spec.Actions {
		used[a.Use] = true
		written := map[string]bool{}
		writtenArguments(written, "", a.With)
		eachArgument(known[a.Use], func(path string, arg actionspec.Arg) {
			used[argument(path, arg)] = used[argument(path, arg)] || written[path]
		})
	}
}

// eachArgument visits the arguments of an action, "partitions" and "partitions.name". Disk hints are one.
func eachArgument(action actionspec.Doc, visit func(path string, arg actionspec.Arg)) {
	var walk func(prefix string, args []actionspec.Arg)
	walk = func(prefix string, args []actionspec.Arg) {
		for _, arg := range args {
			visit(prefix+arg.Name, arg)
			if arg.Type != "path or object" {
				walk(prefix+arg.Name+".", arg.Args)
			}
		}
	}
	walk("", action.Args)
}

// writtenArguments adds the paths of what an action has in its with.
func writtenArguments(written map[string]bool, prefix string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			written[prefix+key] = true
			writtenArguments(written, prefix+key+".", v)
		}
	case []any:
		for _, v := range value {
			writtenArguments(written, prefix, v)
		}
	}
}

var exampleLink = regexp.MustCompile(`\]\(([a-z0-9-]+\.(?:yaml|csv))\)`)

// The index of docs/examples has a line for each file, in order.
func TestExamplesIndex(t *testing.T) {
	text, err := os.ReadFile(examplesDir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, files []string
	for _, link := range exampleLink.FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, link[1])
	}
	for _, e := range readExamples(t) {
		files = append(files, filepath.Base(e.path))
	}
	slices.Sort(listed)
	slices.Sort(files)
	if !slices.Equal(listed, files) {
		t.Errorf("docs/examples/README.md lists %q\nand the files are %q", listed, files)
	}
}
