package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
)

// printRendered prints a run that a provision would start.
func (a *app) printRendered(r *trivet.Rendered) error {
	w := &r.Workflow
	fmt.Fprintf(a.Out, "Template %s renders for machine %s. Nothing was changed.\n\n", w.Spec.Template, w.Spec.Machine)
	if err := align(a.Out, plannedRows(w)); err != nil {
		return err
	}
	for i := range w.Spec.Actions {
		if err := a.printArguments(&w.Spec.Actions[i]); err != nil {
			return err
		}
	}
	if err := a.printSeed(&w.Spec); err != nil {
		return err
	}
	if r.Waits != "" {
		fmt.Fprintf(a.Out, "\nA provision would wait now: %s\n", printable(r.Waits))
	}
	return nil
}

// plannedRows returns the steps of a run that has not begun as rows of a table.
func plannedRows(w *trivet.Workflow) [][]string {
	rows := [][]string{{"STEP", "ACTION", "ATTEMPTS", "DEADLINE"}}
	for _, s := range w.Status.Steps {
		use := "-"
		if action := w.Spec.Action(s.Name); action != nil {
			use = action.Use
		}
		attempts := strconv.Itoa(s.MaxAttempts)
		if s.State == trivet.StepSkipped {
			attempts = "skipped"
		}
		rows = append(rows, []string{s.Name, use, attempts, s.Timeout.String()})
	}
	return rows
}

func (a *app) printArguments(action *trivet.Action) error {
	if len(action.With) == 0 {
		return nil
	}
	return a.printSection(fmt.Sprintf("Action %s (%s):", action.Name, action.Use), action.With)
}

// printSeed prints the images that the run uses, and what cloud-init gets where an action writes it.
func (a *app) printSeed(spec *trivet.WorkflowSpec) error {
	if len(spec.Images) > 0 {
		images := map[string]string{}
		for _, i := range spec.Images {
			images[i.Name] = i.Blob.Digest
		}
		if err := a.printSection("Images:", images); err != nil {
			return err
		}
	}
	for _, action := range spec.Actions {
		if action.Use == "seed" {
			return a.printSection("Seed for cloud-init:", spec.Seed)
		}
	}
	return nil
}

// printSection prints a value as indented YAML.
func (a *app) printSection(title string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	text, err := yamlOf(raw, false)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Out, "\n%s\n  %s\n", title, strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  "))
	return err
}
