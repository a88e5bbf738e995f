package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// renderProblems returns what is wrong with a template or its parameters: parameters with the flag to write, arguments
// with their action and line. doc is the template; nil: it is not known.
func renderProblems(err error, doc *document) error {
	var errs []error
	for _, f := range apitypes.FieldErrors(err) {
		parameter, isParameter := strings.CutPrefix(f.Field, "spec.parameters.")
		switch {
		case isParameter:
			errs = append(errs, parameterProblem(parameter, f.Problem))
		case doc != nil && ofTemplate.MatchString(f.Field):
			errs = append(errs, &placed{doc.file, doc.find(f.Field), actionText(doc, f.Field) + f.Error(), doc.lines})
		default:
			errs = append(errs, f)
		}
	}
	if errs == nil {
		return err
	}
	return errors.Join(errs...)
}

func parameterProblem(name, problem string) error {
	if strings.HasPrefix(problem, "is missing") {
		problem += fmt.Sprintf("; write --param %s=VALUE", name)
	}
	return &trivet.FieldError{Field: "parameter " + name, Problem: problem}
}

// ofTemplate are the fields of a template; spec.parameters.NAME is one of a provision.
var ofTemplate = regexp.MustCompile(`^spec\.(actions|limits|parameters\[)`)

var actionField = regexp.MustCompile(`^spec\.actions\[(\d+)\]`)

// actionText names the action of a field.
func actionText(doc *document, field string) string {
	found := actionField.FindStringSubmatch(field)
	if found == nil {
		return ""
	}
	i, err := strconv.Atoi(found[1])
	record, _ := doc.value.(map[string]any)
	spec, _ := record["spec"].(map[string]any)
	actions, _ := spec["actions"].([]any)
	if err != nil || i >= len(actions) {
		return ""
	}
	action, _ := actions[i].(map[string]any)
	name, ok := action["name"].(string)
	if !ok {
		return ""
	}
	return "action " + name + ": "
}
