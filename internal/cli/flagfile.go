package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// maxFlagFile bounds a file of flags, in bytes.
const maxFlagFile = 1 << 20

// SetFlags sets flags from a file of YAML, whose keys are their names. What the command line has set stays as it is. A
// file that others may read must not set one of the flags that are secret.
func SetFlags(flags *pflag.FlagSet, path string, secret ...string) error {
	text, mode, err := readFlagFile(path)
	if err != nil {
		return &trivet.Error{Op: "read configuration", Err: err}
	}
	if mode.Perm()&0o007 == 0 {
		secret = nil
	}
	return setFlags(flags, path, text, secret)
}

func readFlagFile(path string) (text []byte, mode fs.FileMode, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	text, err = io.ReadAll(io.LimitReader(f, maxFlagFile+1))
	if err == nil && len(text) > maxFlagFile {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, trivet.ErrTooLarge, maxFlagFile)
	}
	return text, info.Mode(), err
}

// setFlags sets flags from the text of a file. forbidden are those that it must not set. Its errors do not show lines
// of the file, which may hold secrets.
func setFlags(flags *pflag.FlagSet, path string, text []byte, forbidden []string) error {
	docs, err := parseYAML(path, text)
	if wrong := (*placed)(nil); errors.As(err, &wrong) {
		wrong.lines = nil
	}
	if err != nil || len(docs) == 0 {
		return err
	}
	doc := docs[0]
	values, ok := doc.value.(map[string]any)
	if !ok || len(docs) > 1 {
		return &placed{path, position{1, 1}, "the file must be one document of lines, NAME: VALUE", nil}
	}
	known := settings(flags)
	var wrong []*placed
	for name, value := range values {
		problem := setFlag(known, name, value)
		if slices.Contains(forbidden, name) && value != "" {
			problem = name + " is a secret, and others may read this file; chmod o= " + path
		}
		if problem != "" {
			wrong = append(wrong, &placed{path, doc.at[apitypes.Join("", name)], problem, nil})
		}
	}
	return inOrder(wrong)
}

// settings returns the flags that a file may set, by name.
func settings(flags *pflag.FlagSet) map[string]*pflag.Flag {
	known := map[string]*pflag.Flag{}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "config" && !f.Hidden {
			known[f.Name] = f
		}
	})
	return known
}

// setFlag sets a flag unless the command line did, and returns what is wrong with it.
func setFlag(known map[string]*pflag.Flag, name string, value any) (problem string) {
	f, ok := known[name]
	if !ok {
		return fmt.Sprintf("there is no setting %q%s", name, apitypes.Suggest(name, known))
	}
	set := f.Value.Set
	if f.Changed {
		set = func(string) error { return nil }
	}
	switch v := value.(type) {
	case []any:
		return setList(f, v)
	case string:
		return refusal(f, v, set(v))
	case bool, json.Number:
		if isText(f) {
			return fmt.Sprintf("%s is no text; write it in quotes: \"%v\"", name, v)
		}
		return refusal(f, fmt.Sprint(v), set(fmt.Sprint(v)))
	case nil:
		return name + " has no value; write one, or begin the line with #"
	}
	return name + " has one value, not an object"
}

// setList sets a flag that may have several values.
func setList(f *pflag.Flag, items []any) (problem string) {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return f.Name + " has one value, not a list"
	}
	texts := make([]string, len(items))
	for i, item := range items {
		if texts[i], ok = item.(string); !ok {
			return fmt.Sprintf("%s is a list of texts; write each in quotes", f.Name)
		}
	}
	if f.Changed || len(texts)+len(list.GetSlice()) == 0 {
		return ""
	}
	return refusal(f, strings.Join(texts, ", "), list.Replace(texts))
}

// isText reports whether a flag takes any text. A number or a truth value in its place may not be what is meant: 010
// is 8.
func isText(f *pflag.Flag) bool {
	_, list := f.Value.(pflag.SliceValue)
	return list || f.Value.Type() == "string"
}

// refusal returns the problem that a flag has with a value.
func refusal(f *pflag.Flag, value string, err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%s is %q: %v", f.Name, value, err)
}

// inOrder joins errors in the order of the file.
func inOrder(found []*placed) error {
	slices.SortFunc(found, func(a, b *placed) int {
		return cmp.Or(a.at.line-b.at.line, a.at.column-b.at.column, strings.Compare(a.problem, b.problem))
	})
	var errs []error
	for _, p := range found {
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}
