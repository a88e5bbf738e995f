package fleet

import (
	"errors"
	"fmt"

	"github.com/trivet-project/trivet"
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
	for _, name := range workflow.NamedImages(t, p.Spec.Parameters) {
		full, err := imageName(p.Project, t.Project, name)
		if err != nil {
			return &trivet.FieldError{Field: "spec.template", Problem: fmt.Sprintf("%s: image %v", p.Spec.Template, err)}
		}
		if _, err := f.Images.In(tx).Get(full); errors.Is(err, trivet.ErrNotFound) {
			project, own := trivet.SplitName(full)
			flag := ""
			if project != trivet.DefaultProject {
				flag = " -p " + project
			}
			return &trivet.FieldError{Field: "spec.template", Problem: fmt.Sprintf(
				"%s uses image %s, which does not exist; import it first: trivet image import FILE --name %s%s",
				p.Spec.Template, trivet.ShortName(full), own, flag)}
		} else if err != nil {
			return err
		}
	}
	return nil
}
