package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/reference"
)

// compare orders two records.
type compare func(x, y found) int

// sorter returns how the records of a kind are sorted: by a field, or else events by time and other records as the head
// lists them, which is nil.
func sorter(info trivet.KindInfo, by string) (compare, error) {
	if by == "" {
		if info.Kind == "Event" {
			return byTime, nil
		}
		return nil, nil
	}
	if info.Kind == "Machine" && by == "reputation" {
		return byReputation(time.Now()), nil
	}
	if label, ok := strings.CutPrefix(by, "labels."); ok { // whose keys may have dots
		return byValue([]string{"labels", label}, "string"), nil
	}
	path, field, err := reference.Lookup(string(info.Kind) + "." + by)
	if err != nil {
		return nil, fmt.Errorf("--sort-by %s: %w", by, err)
	}
	if len(field.Fields) > 0 {
		return nil, fmt.Errorf("%w: --sort-by %s: it is %s; name a field below it: trivet explain %s",
			trivet.ErrInvalid, by, field.Type, path)
	}
	return byValue(strings.Split(path, ".")[1:], field.Type), nil
}

// byName orders records by project and, in natural order, by name.
func byName(x, y found) int {
	a, b := x.record.Header(), y.record.Header()
	return cmp.Or(cmp.Compare(a.Project, b.Project), byNumber(a.Name, b.Name))
}

func byTime(x, y found) int {
	a, aOK := x.record.(*trivet.Event)
	b, bOK := y.record.(*trivet.Event)
	if !aOK || !bOK {
		return 0
	}
	return cmp.Or(a.Spec.Time.Compare(b.Spec.Time), cmp.Compare(a.Spec.Seq, b.Spec.Seq))
}

// byValue compares the values at a path. Records without it come first.
func byValue(path []string, typeName string) compare {
	return func(x, y found) int {
		a, b := valueAt(x.raw, path), valueAt(y.raw, path)
		if a == "" || b == "" {
			return cmp.Compare(len(a), len(b))
		}
		return compareTexts(a, b, typeName)
	}
}

// compareTexts compares two values as their type has it.
func compareTexts(a, b, typeName string) int {
	switch typeName {
	case "integer", "number":
		x, _ := strconv.ParseFloat(a, 64)
		y, _ := strconv.ParseFloat(b, 64)
		return cmp.Compare(x, y)
	case "time":
		x, _ := time.Parse(time.RFC3339, a)
		y, _ := time.Parse(time.RFC3339, b)
		return x.Compare(y)
	case "duration":
		x, _ := time.ParseDuration(a)
		y, _ := time.ParseDuration(b)
		return cmp.Compare(x, y)
	case "size":
		var x, y trivet.ByteSize
		if x.UnmarshalText([]byte(a)) == nil && y.UnmarshalText([]byte(b)) == nil {
			return cmp.Compare(x, y)
		}
	}
	return byNumber(a, b)
}

// valueAt returns the value at a path of a record's JSON as text, of a list that of its first element; empty: there is
// none.
func valueAt(raw json.RawMessage, path []string) string {
	if list := []json.RawMessage(nil); json.Unmarshal(raw, &list) == nil {
		if len(list) == 0 {
			return ""
		}
		return valueAt(list[0], path)
	}
	if len(path) == 0 {
		text := ""
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		return text
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil || object[path[0]] == nil {
		return ""
	}
	return valueAt(object[path[0]], path[1:])
}

// sorted sorts records, those that are equal as they were.
func sorted(all []found, by compare) []found {
	if by != nil {
		slices.SortStableFunc(all, by)
	}
	return all
}

// periodOf returns what keeps the events of a period: since and until are a duration before now, or a time.
func periodOf(info trivet.KindInfo, since, until string, now time.Time) (func([]found) []found, error) {
	from, err := timeOf("--since", since, now)
	if err != nil {
		return nil, err
	}
	to, err := timeOf("--until", until, now)
	if err != nil {
		return nil, err
	}
	if (since != "" || until != "") && info.Kind != "Event" {
		return nil, fmt.Errorf("%w: --since and --until are for events; to sort %s by age: --sort-by created",
			trivet.ErrInvalid, info.Plural)
	}
	return func(all []found) []found {
		return slices.DeleteFunc(all, func(f found) bool {
			e, ok := f.record.(*trivet.Event)
			return ok && (e.Spec.Time.Before(from) || !to.IsZero() && !e.Spec.Time.Before(to))
		})
	}, nil
}

// timeOf parses a duration before now or a time; zero where there is none.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, time.DateOnly} { // without a zone: UTC, as events print
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: %s is %q; write a duration such as 90m, or a time such as 2026-01-31, "+
		"2026-01-31 12:00:00 or 2026-01-31T12:00:00Z", trivet.ErrInvalid, flag, text)
}

// completeFieldsOf completes the path of a field of the kind that is named first.
func completeFieldsOf(_ *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, d := completePaths(nil, nil, args[0]+"."+typed)
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], args[0]+".")
	}
	return all, d
}
