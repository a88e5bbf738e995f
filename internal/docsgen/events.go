package docsgen

import (
	"fmt"
	"slices"
	"strings"
)

// events writes the page of all reasons of events.
func events(src *source) (string, error) {
	var b strings.Builder
	b.WriteString("# Events\n\nEvery transition of a machine and its run is recorded as an " +
		"[Event](records.md#event), in the\ntransaction that caused it. `trivet why MACHINE` and `trivet get events` " +
		"show them. `spec.reason` is one\nof these; its message is for people.\n\n" +
		"| Reason | Meaning |\n|---|---|\n")
	reasons := reasonsOf(src)
	if len(reasons) == 0 {
		return "", fmt.Errorf("the root package has no constants whose names begin with Reason")
	}
	for _, r := range reasons {
		_, doc, ok := strings.Cut(r.doc, ": ")
		if !ok {
			return "", fmt.Errorf("%s has no comment of the form \"%s: what happened\"", r.name, r.name)
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", r.value, sentence(text(doc)))
	}
	return b.String(), nil
}

// reasonsOf returns the constants Reason..., in their order.
func reasonsOf(src *source) []named {
	return slices.DeleteFunc(slices.Concat(src.consts[""], src.consts["EventReason"]),
		func(c named) bool { return !strings.HasPrefix(c.name, "Reason") })
}
