package apitypes

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Suggest returns a question for the known property that is closest to key, or all of them.
func Suggest[V any](key string, known map[string]V) string {
	if near := Nearest(key, known); near != "" {
		return "; did you mean " + near + "?"
	}
	return "; the known ones are " + strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

// Nearest returns the name that is closest to key, or the only one that begins as it does; empty: none is close.
func Nearest[V any](key string, known map[string]V) string {
	const prefix = 4 // of params and parameters; shorter ones are of too many names
	best, least := "", min(3, (len(key)+3)/2)
	var longer []string
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if d := distance(strings.ToLower(key), strings.ToLower(name)); d < least {
			best, least = name, d
		}
		if len(key) >= prefix && strings.HasPrefix(strings.ToLower(name), strings.ToLower(key[:prefix])) {
			longer = append(longer, name)
		}
	}
	if best == "" && len(longer) == 1 {
		return longer[0]
	}
	return best
}

// distance returns the edit distance of a and b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// suggest returns what to write for a property that a struct does not have.
func (c *checker) suggest(path, key string, known map[string]reflect.StructField) string {
	if path == "" && (key == "metadata" || key == "apiVersion") {
		return "; this is no record of Kubernetes: write kind, name, labels and spec at the top"
	}
	if near := Nearest(key, known); near != "" {
		return "; did you mean " + near + "?"
	}
	if _, action := known["with"]; action {
		return "; an action's arguments are below with" + Suggest(key, known)
	}
	if there := placesOf(c.root, key, "", 0); len(there) > 0 {
		return "; did you mean " + strings.Join(there, " or ") + "?"
	}
	return Suggest(key, known)
}

// placesOf returns the paths of a property that people write, outside of lists.
func placesOf(t reflect.Type, key, path string, depth int) (all []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || depth > 3 || reflect.PointerTo(t).Implements(textType) {
		return nil
	}
	known := Properties(t)
	for _, name := range slices.Sorted(maps.Keys(known)) {
		at := Join(path, name)
		switch {
		case at == "status":
		case name == key:
			all = append(all, at)
		default:
			all = append(all, placesOf(known[name].Type, key, at, depth+1)...)
		}
	}
	return all
}

// textProblem returns what is wrong with a text, and what to write.
func textProblem(t reflect.Type, text string, err error) string {
	prefix, errPrefix := netip.ParsePrefix(text)
	address, errAddress := netip.ParseAddr(text)
	switch t {
	case reflect.TypeFor[netip.Addr]():
		if errPrefix == nil {
			return fmt.Sprintf("%q is a subnet; write an address, such as %s", text, prefix.Addr())
		}
		return fmt.Sprintf("%.80q is no IP address; write one such as 10.0.0.9", text)
	case reflect.TypeFor[netip.Prefix]():
		if errAddress == nil {
			return fmt.Sprintf("%q is an address; write a subnet such as 10.0.0.0/24, or %s for one host", text,
				netip.PrefixFrom(address, address.BitLen()))
		}
		return fmt.Sprintf("%.80q is no subnet; write one such as 10.0.0.0/24", text)
	}
	return strings.TrimPrefix(err.Error(), "parsing ")
}
