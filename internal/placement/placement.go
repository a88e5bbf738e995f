// Package placement chooses a machine for a provision, or reports why none fits. It is pure.
package placement

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Choice is a machine, or the reason why there is none.
type Choice struct {
	Machine string
	// Why is set if Machine is empty: what the operator has to change.
	Why string
}

// Pick chooses one of the machines for a provision: the named one, or, of those with the selector's labels, the first
// by name that is available. avoid returns why a machine must not be chosen now; empty where it may. It may be nil.
func Pick(machines []*trivet.Machine, spec *trivet.ProvisionSpec, avoid func(*trivet.Machine) string) Choice {
	reasons := map[string]int{}
	best := ""
	for _, m := range machines {
		if !matches(m, spec) {
			continue
		}
		reason := unfit(m, avoid)
		if reason != "" {
			reasons[reason]++
			continue
		}
		if best == "" || m.Name < best {
			best = m.Name
		}
	}
	switch {
	case best != "":
		return Choice{Machine: best}
	case len(reasons) > 0:
		return Choice{Why: "no machine is free: " + tally(reasons)}
	case spec.Machine != "":
		return Choice{Why: "there is no machine " + spec.Machine}
	default:
		return Choice{Why: "no machine has the labels " + labels(spec.Selector)}
	}
}

func matches(m *trivet.Machine, spec *trivet.ProvisionSpec) bool {
	if spec.Machine != "" && m.Name != spec.Machine {
		return false
	}
	for key, value := range spec.Selector {
		if got, ok := m.Labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// unfit returns why a machine cannot be claimed; empty when it can.
func unfit(m *trivet.Machine, avoid func(*trivet.Machine) string) string {
	switch {
	case m.Spec.Cordoned:
		return "cordoned"
	case m.Status.State == trivet.MachineDiscovered:
		return "discovered but not accepted"
	case m.Status.State != trivet.MachineAvailable:
		return string(m.Status.State)
	case len(m.Spec.NICs) == 0:
		return "without a MAC"
	case avoid != nil:
		return avoid(m)
	default:
		return ""
	}
}

func tally(reasons map[string]int) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, fmt.Sprintf("%d %s", reasons[reason], reason))
	}
	return strings.Join(parts, ", ")
}

func labels(selector map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		parts = append(parts, key+"="+selector[key])
	}
	return strings.Join(parts, ",")
}
