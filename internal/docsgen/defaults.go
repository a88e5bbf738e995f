package docsgen

import (
	"fmt"
	"reflect"
	"regexp"

	"github.com/trivet-project/trivet"
)

// orDefault ends the names of the methods that return a field, or what holds where it is empty: LeaseOrDefault of
// Lease. All code that reads such a field uses them, so that no comment has to repeat a default.
const orDefault = "OrDefault"

// defaultOf returns the default of a field of a struct; empty: it has none.
func defaultOf(in reflect.Type, f reflect.StructField) string {
	method := reflect.New(in).MethodByName(f.Name + orDefault)
	if !method.IsValid() {
		return ""
	}
	value := method.Call(nil)[0].Interface()
	if d, ok := value.(trivet.Duration); ok {
		return short(d)
	}
	return fmt.Sprint(value)
}

// zeroUnits are the last units of a duration's text where they are zero.
var zeroUnits = regexp.MustCompile(`([hm])0[ms](0s)?$`)

// short writes a duration as people do: 24h, 1m.
func short(d trivet.Duration) string { return zeroUnits.ReplaceAllString(d.String(), "$1") }
