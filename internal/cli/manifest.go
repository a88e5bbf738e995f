package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// maxManifest bounds one file of records, in bytes.
const maxManifest = 16 << 20

// manifest is one record of a file.
type manifest struct {
	*document
	info   trivet.KindInfo
	record trivet.Record
	body   []byte // its JSON
}

func (m *manifest) title() string { return title(m.info, m.record.Header().Name) }

// project returns the project that the record is applied to.
func (m *manifest) project(a *app) string { return cmp.Or(m.record.Header().Project, a.project()) }

// readManifests reads files, directories ("*.yaml", "*.yml" and "*.json" in them) and "-", standard input. All of
// them must be valid: an error in the last file prevents the first one from being sent. Records come after those that
// they refer to.
func (a *app) readManifests(paths []string) ([]*manifest, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: %w: no *.yaml, *.yml or *.json is there; directories below are not searched",
			strings.Join(paths, ", "), trivet.ErrInvalid)
	}
	var all []*manifest
	var errs []error
	for _, file := range files {
		text, err := a.readFile(file)
		if err != nil {
			return nil, err
		}
		found, err := readManifest(file, text)
		all = append(all, found...)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: no records in %s; a record has kind, name and spec", trivet.ErrInvalid,
			strings.Join(paths, ", "))
	}
	byDependence(all)
	return all, nil
}

func expand(paths []string) ([]string, error) {
	var files []string
	for _, p := range paths {
		info, err := os.Stat(p)
		switch {
		case p == "-":
			files = append(files, p)
		case err != nil:
			return nil, err
		case !info.IsDir():
			files = append(files, p)
		default:
			found, err := manifestsIn(p)
			if err != nil {
				return nil, err
			}
			files = append(files, found...)
		}
	}
	return files, nil
}

// manifestsIn returns the manifests of a directory.
func manifestsIn(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// readFile returns the text of a file.
func (a *app) readFile(path string) ([]byte, error) {
	text, err := a.readBytes(path)
	if err != nil {
		return nil, err
	}
	return plainText(shown(path), text)
}

func (a *app) readBytes(path string) ([]byte, error) {
	in := a.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = fmt.Errorf("%s: %w: more than %s; divide it into several files", path, trivet.ErrTooLarge,
			bytesText(maxManifest))
	}
	return text, err
}

// shown is how messages name a file.
func shown(path string) string {
	if path == "-" {
		return "stdin"
	}
	return path
}

func readManifest(file string, text []byte) ([]*manifest, error) {
	file = shown(file)
	if filepath.Ext(file) == ".json" {
		if err := checkJSON(file, text); err != nil {
			return nil, err
		}
	}
	docs, err := parseYAML(file, text)
	if err != nil {
		return nil, err
	}
	var all []*manifest
	var errs []error
	for _, d := range docs {
		m, err := d.manifest()
		if err != nil {
			errs = append(errs, d.locate(err))
			continue
		}
		all = append(all, m)
	}
	return all, errors.Join(errs...)
}

// manifest decodes and validates a document. Rules that came after the first release are left to the head: they spare
// what is stored.
func (d *document) manifest() (*manifest, error) {
	object, ok := d.value.(map[string]any)
	if !ok {
		return nil, &trivet.FieldError{Field: "record", Problem: "must be an object with kind, name and spec"}
	}
	kind, _ := object["kind"].(string)
	info, err := kindOf(kind)
	if err != nil {
		return nil, err
	}
	m := &manifest{document: d, info: info, record: info.New()}
	if err := apitypes.Check(d.value, reflect.TypeOf(m.record)); err != nil {
		return nil, err
	}
	if m.body, err = json.Marshal(d.value); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(m.body, m.record); err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	if m.has("status") && !m.has("revision") { // what get prints has both
		err = &trivet.FieldError{Field: "status", Problem: "is written by Trivet only; remove it"}
	}
	if project := m.record.Header().Project; err == nil && project != "" {
		err = info.ValidateProject(project)
	}
	return m, errors.Join(err, m.record.Validate())
}

// kindOf returns the kind of a record in a file, which must match exactly.
func kindOf(kind string) (trivet.KindInfo, error) {
	known := map[string]bool{}
	for _, info := range trivet.Kinds {
		switch {
		case string(info.Kind) != kind:
			known[string(info.Kind)] = true
		case info.ReadOnly:
			return info, &trivet.FieldError{Field: "kind",
				Problem: fmt.Sprintf("%s records are read-only: only Trivet writes them", kind)}
		default:
			return info, nil
		}
	}
	if kind == "" {
		return trivet.KindInfo{}, &trivet.FieldError{Field: "kind", Problem: "is required, such as kind: Machine"}
	}
	return trivet.KindInfo{}, &trivet.FieldError{Field: "kind",
		Problem: fmt.Sprintf("%q is unknown%s", kind, apitypes.Suggest(kind, known))}
}
