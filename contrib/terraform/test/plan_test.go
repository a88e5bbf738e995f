package test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// plan is a planned change of a resource.
type plan struct {
	prior, planned, config tftypes.Value
	private                []byte
	replace                []string // attributes that need a new resource
}

// action returns what the plan does.
func (p *plan) action() string {
	switch {
	case p.prior.IsNull():
		return "create"
	case p.planned.IsNull():
		return "delete"
	case len(p.replace) > 0:
		return "replace"
	case !p.planned.Equal(p.prior):
		return "update"
	}
	return "none"
}

// changed returns the attributes that the plan changes, in order.
func (p *plan) changed() (names []string) {
	for name, value := range fields(p.planned) {
		if !value.Equal(fields(p.prior)[name]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// plan plans a configuration for the present state, without a refresh. It returns the errors.
func (i *instance) plan(config object) (*plan, string) {
	i.Helper()
	if text := i.validate(config); text != "" {
		return nil, text
	}
	p := &plan{prior: i.state, config: config.value(i.objectType())}
	return p, i.fill(p)
}

// fill has the provider plan a change.
func (i *instance) fill(p *plan) string {
	i.Helper()
	proposed := i.proposed(p)
	resp, err := i.server.PlanResourceChange(i.ctx, &tfprotov6.PlanResourceChangeRequest{TypeName: i.kind,
		PriorState: i.encode(p.prior), ProposedNewState: i.encode(proposed), Config: i.encode(p.config),
		PriorPrivate: i.private})
	i.must(err, nil)
	if text := i.errors(resp.Diagnostics); text != "" {
		return text
	}
	p.planned, p.private, p.replace = i.decode(resp.PlannedState, i.objectType()), resp.PlannedPrivate, nil
	for _, at := range resp.RequiresReplace {
		if name := strings.TrimSuffix(strings.TrimPrefix(at.String(), `AttributeName("`), `")`); i.differs(p, name) {
			p.replace = append(p.replace, name)
		}
	}
	p.check(i)
	return ""
}

// differs reports whether a plan changes an attribute: Terraform ignores it otherwise.
func (i *instance) differs(p *plan, name string) bool {
	return !fields(p.planned)[name].Equal(fields(p.prior)[name])
}

// proposed returns the configuration with the computed attributes of the state.
func (i *instance) proposed(p *plan) tftypes.Value {
	if p.config.IsNull() {
		return p.config
	}
	set, prior, out := fields(p.config), fields(p.prior), map[string]tftypes.Value{}
	for _, a := range i.schema.Block.Attributes {
		if out[a.Name] = set[a.Name]; set[a.Name].IsNull() && a.Computed && !p.prior.IsNull() {
			out[a.Name] = prior[a.Name]
		}
	}
	return tftypes.NewValue(i.objectType(), out)
}

// check holds a plan to Terraform's rules: a planned value is the configured one or the prior one; only a computed one
// is free.
func (p *plan) check(i *instance) {
	i.Helper()
	if p.planned.IsNull() {
		return
	}
	set, prior, planned := fields(p.config), fields(p.prior), fields(p.planned)
	for _, a := range i.schema.Block.Attributes {
		switch v := planned[a.Name]; {
		case a.WriteOnly && !v.IsNull():
			i.Errorf("plan of %s: %s is write-only and has a value", i.kind, a.Name)
		case a.WriteOnly, set[a.Name].IsNull() && a.Computed, v.Equal(set[a.Name]):
		case !p.prior.IsNull() && v.Equal(prior[a.Name]):
		default:
			i.Errorf("plan of %s: %s is %s, configured %s", i.kind, a.Name, v, set[a.Name])
		}
	}
}

// checkApplied holds a new state to Terraform's rule: what was known in the plan is so.
func (p *plan) checkApplied(i *instance) {
	i.Helper()
	if p.planned.IsNull() != i.state.IsNull() {
		i.Errorf("%s: planned %s, applied %s", i.kind, p.planned, i.state)
	}
	for name, value := range fields(p.planned) {
		if got := fields(i.state)[name]; i.exists() && value.IsFullyKnown() && !got.Equal(value) {
			i.Errorf("%s: %s is %s, planned %s", i.kind, name, got, value)
		}
	}
}

// apply refreshes, plans and applies a configuration as terraform apply does, and returns what it did, or the errors.
func (i *instance) apply(config object) (action, problem string) {
	i.Helper()
	if text := i.read(); text != "" {
		return "", text
	}
	p, text := i.plan(config)
	if text != "" {
		return "", text
	}
	action = p.action()
	switch action {
	case "none":
		return action, ""
	case "replace":
		if text := i.destroy(); text != "" {
			return action, text
		}
		if p, text = i.plan(config); text != "" {
			return action, text
		}
	}
	return action, i.change(i.ctx, p)
}

// mustApply applies a configuration, which must do one thing, and leaves nothing to do.
func (i *instance) mustApply(want string, config object) {
	i.Helper()
	action, text := i.apply(config)
	if text != "" || action != want {
		i.Fatalf("%s: %s; want %s: %s", i.kind, action, want, text)
	}
	i.mustBeDone(config)
}

// mustBeDone fails the test unless a refresh and a plan change nothing.
func (i *instance) mustBeDone(config object) {
	i.Helper()
	if text := i.read(); text != "" {
		i.Fatal(text)
	}
	p, text := i.plan(config)
	if text != "" || p.action() != "none" {
		i.Fatalf("%s: the plan is not empty: %s", i.kind, describe(p, text))
	}
}

// destroy deletes the resource.
func (i *instance) destroy() string {
	i.Helper()
	p := &plan{prior: i.state, config: i.null()}
	if text := i.fill(p); text != "" {
		return text
	}
	return i.change(i.ctx, p)
}

// mustDestroy deletes the resource, which must be gone then.
func (i *instance) mustDestroy() {
	i.Helper()
	if text := i.destroy(); text != "" {
		i.Fatal(text)
	}
	if i.exists() {
		i.Errorf("%s is in the state after its deletion", i.kind)
	}
}

// describe returns a plan as text.
func describe(p *plan, problem string) string {
	if problem != "" {
		return problem
	}
	return fmt.Sprint(p.action(), " ", p.changed(), " ", fields(p.planned)["spec"], " was ", fields(p.prior)["spec"])
}
