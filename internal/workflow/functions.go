package workflow

import (
	"fmt"
	"strings"
	"text/template"

	"github.com/trivet-project/trivet"
)

// callable are the functions of a text. Of text/template's own there are those that cannot grow a text.
var callable = map[string]bool{
	"and": true, "or": true, "not": true, "len": true, "index": true,
	"lower": true, "upper": true, "join": true, "default": true, "eq": true, "ne": true, "print": true, "printf": true,
}

// MaxWork bounds what all texts of a template write and what their functions read and write, in bytes: a variable
// that is joined with itself forty times would otherwise be a terabyte before a byte of it is written.
const MaxWork = 4 << 20

var errTooMuch = fmt.Errorf("%w: the template's texts need more than %d bytes of work", trivet.ErrTooLarge, MaxWork)

// budget is what is left of MaxWork. nil is for texts that are only parsed.
type budget struct{ left int }

// spend is called before a text is created.
func (b *budget) spend(n int) error {
	const call = 16 // what a call costs by itself
	if b.left -= min(n, MaxWork) + call; b.left < 0 {
		return errTooMuch
	}
	return nil
}

func (b *budget) texts(s ...string) error {
	n := 0
	for _, text := range s {
		n += len(text)
	}
	return b.spend(2 * n)
}

func functions(b *budget) template.FuncMap {
	return template.FuncMap{
		"lower": func(s string) (string, error) { return strings.ToLower(s), b.texts(s) },
		"upper": func(s string) (string, error) { return strings.ToUpper(s), b.texts(s) },
		"join": func(sep string, list []string) (string, error) {
			if err := b.spend(2 * len(sep) * len(list)); err != nil {
				return "", err
			}
			if err := b.texts(list...); err != nil {
				return "", err
			}
			return strings.Join(list, sep), nil
		},
		"default": func(def, s string) string {
			if s == "" {
				return def
			}
			return s
		},
		"eq":     b.equal,
		"ne":     func(v, other any) (bool, error) { same, err := b.equal(v, other); return !same, err },
		"print":  b.join,
		"printf": b.format,
		each:     b.each,
	}
}

// equal reports whether v is one of the others. Lists cannot be compared; text/template converts that panic to an
// error.
func (b *budget) equal(v any, others ...any) (bool, error) {
	for _, o := range others {
		if s, ok := o.(string); ok {
			if err := b.spend(len(s)); err != nil {
				return false, err
			}
		}
		if o == v {
			return true, nil
		}
	}
	return false, b.spend(0)
}

func (b *budget) join(s ...string) (string, error) {
	if err := b.texts(s...); err != nil {
		return "", err
	}
	return strings.Join(s, ""), nil
}

// format knows %s, %q and %%: widths make texts of any size.
func (b *budget) format(format string, s ...string) (string, error) {
	for rest := format; ; {
		_, verb, found := strings.Cut(rest, "%")
		if !found {
			break
		}
		if verb == "" || !strings.Contains("sq%", verb[:1]) {
			return "", fmt.Errorf("printf %q: %w: write %%s, %%q or %%%%", format, trivet.ErrInvalid)
		}
		rest = verb[1:]
	}
	if err := b.texts(append(s, format)...); err != nil {
		return "", err
	}
	args := make([]any, len(s))
	for i := range s {
		args[i] = s[i]
	}
	return fmt.Sprintf(format, args...), nil
}
