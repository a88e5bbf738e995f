// Package placement decides which machines a provision may use, and reports why none fits. It is pure.
package placement

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/faultinject"
)

// Matches reports whether a machine is the one that a provision names, and has the labels of its selector.
func Matches(m *trivet.Machine, spec *trivet.ProvisionSpec) bool {
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

// Free reports whether a machine can be claimed, as far as its record shows.
func Free(m *trivet.Machine) bool { return unfit(m, nil) == "" }

// maxCounted is how many machines are read to find a preferred one, or to report why none fits.
const maxCounted = 256

// First returns the first of the machines that a provision matches and that can be claimed; nil where none is. avoid
// returns why a machine must not be chosen now; empty where it may. It may be nil.
func First(machines iter.Seq[*trivet.Machine], spec *trivet.ProvisionSpec,
	avoid func(*trivet.Machine) string) *trivet.Machine {
	return Preferred(machines, spec, avoid, func(*trivet.Machine) float64 { return 0 })
}

// Preferred is First, with the best one of the first machines that can be claimed. worse returns how much a machine is
// worse than the best ones; the search ends at the first one of which that is 0.
func Preferred(machines iter.Seq[*trivet.Machine], spec *trivet.ProvisionSpec, avoid func(*trivet.Machine) string,
	worse func(*trivet.Machine) float64) (best *trivet.Machine) {
	n, least := 0, 0.0
	for m := range machines {
		if !Matches(m, spec) || unfit(m, avoid) != "" {
			continue
		}
		by := worse(m)
		if by == 0 {
			return m
		}
		if best == nil || by < least {
			best, least = m, by
		}
		if n++; n == maxCounted {
			return best
		}
	}
	return best
}

// Why reports why none of the machines fits a provision: what the operator has to change. Of many machines it reads
// the first ones, and gives round numbers: the reason is stored in the record, which must not change with each
// machine.
func Why(machines iter.Seq[*trivet.Machine], spec *trivet.ProvisionSpec, avoid func(*trivet.Machine) string) string {
	reasons, counted, all := map[string]int{}, 0, true
	for m := range machines {
		if counted == maxCounted {
			all = false
			break
		}
		if reason := unfit(m, avoid); Matches(m, spec) && reason != "" {
			reasons[reason]++
			counted++
		}
	}
	switch {
	case len(reasons) > 0:
		return "no machine is free: " + tally(reasons, all)
	case spec.Machine != "":
		return "there is no machine " + spec.Machine
	default:
		return "no machine has the labels " + labels(spec.Selector)
	}
}

// unfit returns why a machine cannot be claimed; empty when it can.
func unfit(m *trivet.Machine, avoid func(*trivet.Machine) string) string {
	switch {
	case faultinject.MachineTwice:
		return ""
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

// tally prints how many machines each reason holds for. all: no machine is left out.
func tally(reasons map[string]int, all bool) string {
	var parts []string
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, round(reasons[reason])+" "+reason)
	}
	if !all {
		parts = append(parts, "and others")
	}
	return strings.Join(parts, ", ")
}

func round(n int) string {
	switch {
	case n > 100:
		return "over 100"
	case n > 10:
		return "over 10"
	}
	return fmt.Sprint(n)
}

func labels(selector map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		parts = append(parts, key+"="+selector[key])
	}
	return strings.Join(parts, ",")
}
