package docsgen

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/trivet-project/trivet"
)

// bounds are the constants that comments refer to. A page shows their values; a test finds one that is missing here.
var bounds = map[string]any{
	"DefaultActionTimeout": trivet.DefaultActionTimeout,
	"DefaultLease":         trivet.DefaultLease,
	"DefaultResets":        trivet.DefaultResets,
	"DefaultSilence":       trivet.DefaultSilence,
	"EventsPerSubject":     trivet.EventsPerSubject,
	"MaxActionTimeout":     trivet.MaxActionTimeout,
	"MaxActions":           trivet.MaxActions,
	"MaxName":              trivet.MaxName,
	"MaxRecord":            trivet.MaxRecord,
	"MaxRetries":           trivet.MaxRetries,
	"RoleVoter":            trivet.RoleVoter,
	"RoleWitness":          trivet.RoleWitness,
	"SiteName":             trivet.SiteName,
}

// boundName is how constants of the root package that comments refer to are named.
var boundName = regexp.MustCompile("`?\\b((?:Default|Max|Role)[A-Z][A-Za-z]*|EventsPerSubject|SiteName)\\b`?")

// withBounds makes a comment a sentence in which each constant has its value.
func withBounds(doc string) string {
	return boundName.ReplaceAllStringFunc(sentence(doc), func(name string) string {
		v, ok := bounds[strings.Trim(name, "`")]
		if !ok {
			return name
		}
		return fmt.Sprintf("`%v`", v)
	})
}

// bootSteps lists the steps that a run has besides its actions, with their default limits.
func bootSteps(src *source) string {
	var b strings.Builder
	b.WriteString("\n## Boot steps\n\nThe steps of a run besides its actions. A template and the site override these limits by `spec.limits`.\n\n" +
		"| Step | Reached when | Timeout | Attempts |\n|---|---|---|---|\n")
	for _, step := range trivet.BootSteps {
		l := trivet.DefaultLimits[step]
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d |\n", step, text(src.docOf(step)), l.Timeout, l.Tries)
	}
	return b.String()
}
