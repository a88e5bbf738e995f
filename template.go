package trivet

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Template is a list of actions that bring a machine into the desired state.
type Template struct {
	Meta
	Spec TemplateSpec `json:"spec"`
}

// TemplateSpec is the list of actions. Every string in an action's With is a Go template over .Machine, .Provision,
// .Network and .Params; an undefined name is an error when the machine is claimed, never on the machine.
type TemplateSpec struct {
	Description string      `json:"description,omitempty"` // for people
	Parameters  []Parameter `json:"parameters,omitempty"`
	// Limits overrides the site's deadlines and retries of the boot steps, by step ("dhcp", "first-boot").
	Limits  map[string]Limit `json:"limits,omitempty"`
	Actions []Action         `json:"actions"`
}

// Parameter is a value that a provision may or must set.
type Parameter struct {
	Name        string  `json:"name"`                  // as texts refer to it: .Params.NAME
	Description string  `json:"description,omitempty"` // for people
	Default     *string `json:"default,omitempty"`     // nil: the provision must set it
}

// Limit bounds one boot step. What it leaves out is as the site, or [DefaultLimits], has it.
type Limit struct {
	// Timeout bounds one attempt.
	Timeout Duration `json:"timeout,omitempty"`
	// Retries is how many more attempts a failure of this step gets; 0 means none.
	Retries *int `json:"retries,omitempty"`
}

// Action is a step that the agent runs.
type Action struct {
	Name string `json:"name"` // unique in its template; the list's key
	// Use is a built-in: see [ActionUses].
	Use string `json:"use"`
	// With are the arguments, which depend on Use.
	With map[string]any `json:"with,omitempty"`
	// Timeout bounds one attempt.
	Timeout Duration `json:"timeout,omitempty"`
	// Retries is how many more attempts a failure of this action gets; each waits Backoff longer than the last one.
	Retries int      `json:"retries,omitempty"`
	Backoff Duration `json:"backoff,omitempty"` // delay before the first retry
}

// TimeoutOrDefault returns Timeout, or its default.
func (a *Action) TimeoutOrDefault() Duration { return cmp.Or(a.Timeout, DefaultActionTimeout) }

// BackoffAfter returns the delay after a failed attempt.
func (a *Action) BackoffAfter(attempt int) Duration { return a.Backoff * Duration(attempt) }

// ActionUses are the built-in actions, in the order of an ordinary install.
var ActionUses = []string{
	"test-memory", "test-disk", "test-network", "wipe", "verify", "partition", "raid", "lvm", "format", "image",
	"archive", "file", "command", "seed", "head", "bootloader", "container", "kexec", "reboot", "poweroff", "noop",
}

// Bounds of a template.
const (
	MaxActions           = 64
	MaxRetries           = 20
	DefaultActionTimeout = Duration(10 * time.Minute)
	MaxActionTimeout     = Duration(24 * time.Hour)
)

var wordForm = regexp.MustCompile(`^[A-Za-z]([-_A-Za-z0-9]*[A-Za-z0-9])?$`)

// Validate checks a template by itself. Its Go templates are checked by internal/workflow.
func (t *Template) Validate() error {
	var p problems
	p.name(t.Name)
	p.max("spec.parameters", len(t.Spec.Parameters), 64)
	for i, param := range t.Spec.Parameters {
		if !wordForm.MatchString(param.Name) {
			p.add(fmt.Sprintf("spec.parameters[%d].name", i), "%q must be a word of letters, digits, - and _", param.Name)
		}
	}
	validateLimits(&p, "spec.limits", t.Spec.Limits)
	if len(t.Spec.Actions) == 0 {
		p.add("spec.actions", "is empty; a template needs at least one action")
	}
	p.max("spec.actions", len(t.Spec.Actions), MaxActions)
	seen := map[string]bool{}
	for i, a := range t.Spec.Actions {
		a.validate(&p, fmt.Sprintf("spec.actions[%d]", i))
		if seen[a.Name] {
			p.add(fmt.Sprintf("spec.actions[%d].name", i), "%q appears twice", a.Name)
		}
		seen[a.Name] = true
	}
	return p.err()
}

func (a *Action) validate(p *problems, field string) {
	switch {
	case a.Name == "":
		p.add(field+".name", "is missing")
	case !nameForm.MatchString(a.Name) || len(a.Name) > 63:
		p.add(field+".name", "%q: use a-z, 0-9 and '-', at most 63", a.Name)
	case IsBootStep(a.Name):
		p.add(field+".name", "%q is the name of a boot step", a.Name)
	case a.Name == LogConsole:
		p.add(field+".name", "%q is the name of the log of the serial console", a.Name)
	}
	p.oneOf(field+".use", a.Use, ActionUses...)
	if image, _ := a.With["image"].(string); strings.Contains(image, "/") && !strings.Contains(image, "{{") {
		p.projectRef(field+".with.image", image)
	}
	if a.Timeout > MaxActionTimeout {
		p.add(field+".timeout", "is %s; at most %s", a.Timeout, MaxActionTimeout)
	}
	if a.Retries < 0 || a.Retries > MaxRetries {
		p.add(field+".retries", "is %d; 0 to %d", a.Retries, MaxRetries)
	}
	if a.Backoff > MaxActionTimeout {
		p.add(field+".backoff", "is %s; at most %s", a.Backoff, MaxActionTimeout)
	}
}

func validateLimits(p *problems, field string, limits map[string]Limit) {
	for step, l := range limits {
		if !IsBootStep(step) {
			p.add(field+"."+step, "is not a boot step; the boot steps are %s", strings.Join(BootSteps, ", "))
		}
		if l.Retries != nil && (*l.Retries < 0 || *l.Retries > MaxRetries) {
			p.add(field+"."+step+".retries", "is %d; 0 to %d", *l.Retries, MaxRetries)
		}
		if l.Timeout > MaxActionTimeout {
			p.add(field+"."+step+".timeout", "is %s; at most %s", l.Timeout, MaxActionTimeout)
		}
	}
}
