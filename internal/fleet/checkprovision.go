package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/actionspec"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/workflow"
)

// CheckProvision refuses a provision that would fail with any machine: its parameters are not those of its template, or
// an image that the template names does not exist. That the template exists is checked by reference.
func (f *Fleet) CheckProvision(tx *store.Tx, p *trivet.Provision) error {
	t, err := f.Templates.In(tx).Get(trivet.Resolve(p.Project, p.Spec.Template))
	if errors.Is(err, trivet.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := workflow.CheckParameters(t, p.Spec.Parameters); err != nil {
		return err
	}
	for _, named := range workflow.NamedImages(t, p.Spec.Parameters) {
		if err := f.checkImage(tx, p, t, named); err != nil {
			return err
		}
	}
	return nil
}

// checkImage refuses an image that does not exist, or that its action cannot use. The error is about the parameter that
// names it, where one does.
func (f *Fleet) checkImage(tx *store.Tx, p *trivet.Provision, t *trivet.Template, named workflow.NamedImage) error {
	field, uses := "spec.template", p.Spec.Template+" uses "
	if key := parameterOf(t.Spec.Actions[named.Action], p.Spec.Parameters, named.Name); key != "" {
		field, uses = "spec.parameters."+key, "names "
	}
	full, err := imageName(p.Project, t.Project, named.Name)
	if err != nil {
		return &trivet.FieldError{Field: field, Problem: uses + "an image that cannot be used: " + err.Error()}
	}
	project, own := trivet.SplitName(full)
	flag := ""
	if project != trivet.DefaultProject {
		flag = " -p " + project
	}
	image, err := f.Images.In(tx).Get(full)
	if errors.Is(err, trivet.ErrNotFound) {
		write := "import it first"
		if field != "spec.template" {
			write = "write one that exists, or import it first"
		}
		return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("%simage %s, which does not exist (trivet get images%s); "+
			"%s: trivet image import FILE --name %s%s", uses, trivet.ShortName(full), flag, write, own, flag)}
	}
	if err != nil {
		return err
	}
	return wrongFormat(field, uses, t.Spec.Actions[named.Action], trivet.ShortName(full), image)
}

// parameterOf returns the parameter whose value is the image that an action names; empty where there is none.
func parameterOf(a trivet.Action, given map[string]string, image string) string {
	text, _ := a.With["image"].(string)
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if given[key] == image && strings.Contains(text, ".Params."+key) {
			return key
		}
	}
	return ""
}

// wrongFormat refuses an image that an action cannot use.
func wrongFormat(field, uses string, a trivet.Action, name string, image *trivet.Image) error {
	if err := actionspec.CheckFormat(a, name, image.Spec); err != nil {
		return &trivet.FieldError{Field: field, Problem: fmt.Sprintf("%simage %s for action %s, which cannot use it: %v",
			uses, name, a.Name, err)}
	}
	return nil
}

// CheckTemplateImages refuses a template that names an image which exists, and is of a format that its action cannot
// use. One that does not exist yet may be imported later.
func (f *Fleet) CheckTemplateImages(tx *store.Tx, t *trivet.Template) error {
	for _, named := range workflow.NamedImages(t, nil) {
		full := trivet.Resolve(t.Project, named.Name)
		image, err := f.Images.In(tx).Get(full)
		if errors.Is(err, trivet.ErrNotFound) || errors.Is(err, trivet.ErrInvalid) {
			continue
		}
		if err != nil {
			return err
		}
		field, action := fmt.Sprintf("spec.actions[%d].with.image", named.Action), t.Spec.Actions[named.Action]
		if err := wrongFormat(field, "names ", action, trivet.ShortName(full), image); err != nil {
			return err
		}
	}
	return nil
}
