package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/google/renameio/v2"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// editFile is the file of an edit: a header of comments, and the record.
type editFile struct {
	kind   trivet.KindInfo
	path   string // in a directory of its own, which has what the editor writes beside it, too
	about  string // begins the header
	before map[string]any
	body   string // what is below the header
	edited bool   // the body was changed at least once
}

// newEditFile writes a record as get -o yaml shows it, without its status.
func newEditFile(info trivet.KindInfo, name string, raw json.RawMessage, hideProject bool) (*editFile, error) {
	text, err := yamlWithout(raw, func(f yaml.MapItem) bool {
		switch f.Key {
		case "status", "managed", "creator":
			return true
		}
		return hideProject && f.Key == "project" && f.Value == trivet.DefaultProject
	})
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "trivet-edit-")
	if err != nil {
		return nil, err
	}
	f := &editFile{kind: info, path: filepath.Join(dir, name+".yaml"), body: string(text),
		about: "Labels, annotations and spec of " + title(info, name) +
			" can be changed. Save the file, and leave the editor.\n" +
			"Without a change, nothing is written. These lines are ignored.\n"}
	if info.Kind == "Secret" {
		f.about += "The values are hidden; those that you leave as they are stay.\n"
	}
	doc, err := f.parse(0)
	if err == nil && doc == nil {
		err = fmt.Errorf("%w: the record is no object", trivet.ErrInvalid)
	}
	if err == nil {
		f.before, _ = doc.value.(map[string]any)
		err = f.write(f.about)
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f *editFile) remove() error { return os.RemoveAll(filepath.Dir(f.path)) }

// write replaces the file by one with a header of these lines. Where that fails, such as on a full disk, it stays as it
// is.
func (f *editFile) write(header string) error {
	return renameio.WriteFile(f.path, []byte(commented(header)+f.body), 0o600, renameio.WithTempDir(filepath.Dir(f.path)))
}

func commented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimRight("# "+line, " \n") + "\n")
	}
	return b.String()
}

// open runs the editor, and reports whether what is below the header has changed: also where the editor failed.
func (f *editFile) open(a *app) (changed bool, err error) {
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	cmd := exec.Command("sh", "-c", editor+` "$1"`, "sh", f.path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.screen, a.status
	failure := cmd.Run()
	text, err := a.readBytes(f.path)
	if err == nil && isUTF16(text) { // a header cannot be written before it
		_, err = plainText(f.path, text)
	}
	if err != nil {
		f.edited = !errors.Is(err, fs.ErrNotExist)
		return false, err
	}
	body := strings.TrimPrefix(string(text), "\ufeff")
	for strings.HasPrefix(body, "#") {
		_, body, _ = strings.Cut(body, "\n")
	}
	changed = body != f.body
	f.body, f.edited = body, f.edited || changed
	if failure != nil {
		return changed, &trivet.Error{Op: "edit", Err: fmt.Errorf("editor %q: %w", editor, failure),
			Hint: "set VISUAL or EDITOR to the command of your editor"}
	}
	return changed, nil
}

// parse returns the document below a header of so many lines; nil: it is empty.
func (f *editFile) parse(header int) (*document, error) {
	name := filepath.Base(f.path)
	text, err := plainText(name, []byte(strings.Repeat("\n", header)+f.body))
	if err != nil {
		return nil, err
	}
	docs, err := parseYAML(name, text)
	switch {
	case err != nil:
		return nil, err
	case len(docs) > 1:
		return nil, fmt.Errorf("%w: the file has %d records; one is edited", trivet.ErrInvalid, len(docs))
	case len(docs) == 0:
		return nil, nil
	}
	return docs[0], nil
}

// patch returns the merge patch of the edit; nil: nothing changes. Values are validated by the head, which permits what
// an earlier release permitted.
func (f *editFile) patch() ([]byte, error) {
	doc, err := f.parse(0)
	if err != nil || doc == nil {
		return nil, err
	}
	after, ok := doc.value.(map[string]any)
	if !ok {
		return nil, &trivet.FieldError{Field: "record", Problem: "must be an object with kind, name and spec"}
	}
	if err := onlyDesired(f.before, after); err != nil {
		return nil, err
	}
	if reflect.DeepEqual(f.before, after) {
		return nil, nil
	}
	if err := apitypes.CheckEdit(f.before, after, reflect.TypeOf(f.kind.New())); err != nil {
		return nil, err
	}
	before, err := json.Marshal(f.before)
	if err != nil {
		return nil, err
	}
	return trivet.MergePatch(before, after)
}

// desiredParts are what people write of a record, besides its name.
var desiredParts = []string{"labels", "annotations", "spec"}

// onlyDesired refuses changes of anything but labels, annotations and spec.
func onlyDesired(before, after map[string]any) error {
	names := maps.Clone(before)
	maps.Copy(names, after)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.Contains(desiredParts, name) && !reflect.DeepEqual(before[name], after[name]) {
			errs = append(errs, &trivet.FieldError{Field: name,
				Problem: "cannot be changed; labels, annotations and spec can"})
		}
	}
	return errors.Join(errs...)
}

// refuse writes the file again, with why the edit is refused.
func (f *editFile) refuse(err error) error {
	header := func(lines int) string {
		return f.about + "\nIt was refused:\n" + printableLines(f.locateBelow(lines, err).Error())
	}
	return f.write(header(strings.Count(header(0), "\n"))) // where the header ends decides which lines it names
}

// locate returns an error with the lines of the file that it is about.
func (f *editFile) locate(err error) error {
	text, readErr := os.ReadFile(f.path)
	if readErr != nil {
		return err
	}
	return f.locateBelow(strings.Count(strings.TrimSuffix(string(text), f.body), "\n"), err)
}

// locateBelow is locate for a file with a header of so many lines.
func (f *editFile) locateBelow(header int, err error) error {
	doc, parseErr := f.parse(header)
	switch {
	case parseErr != nil:
		return parseErr
	case doc == nil:
		return err
	}
	return doc.locate(err)
}

// printableLines escapes control characters in the lines of a text, which ends with a line.
func printableLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + printable(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}
