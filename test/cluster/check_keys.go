package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// final is the client that reads after the end.
const final = -2

// checkKeys checks what programs wrote and read.
func (h *History) checkKeys(r *report) {
	byKey, refusals := map[string][]op{}, map[string]op{}
	for _, o := range h.Ops {
		switch {
		case o.Do == "create":
			if value, there := h.Final[o.Key]; o.Outcome == done && (!there || value != o.Value) {
				r.add(ErrWriteLost, "%s made %s, and at the end there is %q", describe(o), o.Key, value)
			}
		case o.Outcome == refused:
			if o.Do != "read" {
				refusals[o.Value] = o
			}
		case o.Outcome == done || o.Do != "read":
			byKey[o.Key] = append(byKey[o.Key], o)
		}
	}
	h.checkTwice(r)
	for key, ops := range byKey {
		h.checkKey(r, key, ops)
		for _, o := range ops {
			if bad, ok := refusals[o.Was]; ok && o.Outcome == done && o.Was != "" {
				r.add(ErrRefusedDone, "%s was refused (%s), and %s saw it", describe(bad), bad.Cause, describe(o))
			}
		}
	}
}

// checkTwice checks that no value was written again, over what others wrote meanwhile: each is written by one
// operation.
func (h *History) checkTwice(r *report) {
	written := map[string]int64{}
	for _, c := range h.Whole {
		if c.Kind != "Template" || c.Type != "put" || c.Value == "" {
			continue
		}
		value := c.Name + " " + c.Value
		if at, ok := written[value]; ok {
			r.add(ErrWriteTwice, "%s at revisions %d and %d", value, at, c.Revision)
		}
		written[value] = c.Revision
	}
}

// checkKey searches for an order of a key's operations that explains them all.
func (h *History) checkKey(r *report, key string, ops []op) {
	ops = pruned(ops)
	switch explain(ops) {
	case porcupine.Ok:
		return
	case porcupine.Unknown:
		r.add(ErrUndecided, "no order of %d operations on %s was found in time", len(ops), key)
		return
	}
	writes := slices.DeleteFunc(slices.Clone(ops), func(o op) bool { return o.Do == "read" && o.Client != final })
	if explain(writes) == porcupine.Illegal {
		r.add(ErrWriteLost, "no order explains %d writes of %s and the value at the end; the first that breaks it: %s",
			len(writes), key, blame(writes))
		return
	}
	r.add(ErrStaleRead, "no order explains what %d operations on %s observed; the first that breaks it: %s",
		len(ops), key, blame(ops))
}

// blame returns the first operation, by its end, that the operations before it do not explain.
func blame(ops []op) string {
	slices.SortFunc(ops, func(a, b op) int { return int(a.Return - b.Return) })
	lo, hi := 0, len(ops) // ops[:lo] can be explained, ops[:hi] cannot
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; explain(withUnknown(ops, mid)) == porcupine.Illegal {
			hi = mid
		} else {
			lo = mid
		}
	}
	return describe(ops[hi-1])
}

// withUnknown returns the first n operations, and of those that come later as if nothing were known of their end.
func withUnknown(ops []op, n int) []op {
	out := slices.Clone(ops[:n])
	for _, o := range ops[n:] {
		if o.Do != "read" && o.Call < ops[n-1].Return {
			o.Outcome, o.Return = unknown, forever
			out = append(out, o)
		}
	}
	return out
}

const forever = time.Duration(math.MaxInt64)

// pruned simplifies the history without changing the verdict: a write of unknown outcome whose value was never
// observed explains nothing, and one whose value was observed happened before that. What such a swap itself has found
// was observed, too.
func pruned(ops []op) (out []op) {
	seen := map[string]time.Duration{}
	see := func(value string, at time.Duration) (news bool) {
		was, ok := seen[value]
		if news = value != "" && (!ok || at < was); news {
			seen[value] = at
		}
		return news
	}
	for _, o := range ops {
		if o.Outcome == done {
			see(o.Was, o.Return)
		}
	}
	for news := true; news; {
		news = false
		for _, o := range ops {
			if at, ok := seen[o.Value]; ok && o.Outcome == unknown {
				news = see(o.Was, at) || news
			}
		}
	}
	for _, o := range ops {
		if o.Outcome == unknown {
			at, ok := seen[o.Value]
			if !ok {
				continue
			}
			o.Return = max(at, o.Call+1)
		}
		out = append(out, o)
	}
	return out
}

func explain(ops []op) porcupine.CheckResult {
	var history []porcupine.Operation
	for i, o := range ops {
		history = append(history, porcupine.Operation{
			ClientId: i, Input: o, Call: int64(o.Call), Output: o.Outcome, Return: int64(o.Return),
		})
	}
	return porcupine.CheckOperationsTimeout(register, history, 30*time.Second)
}

// register is the model of one key. Its state is the value.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		o := input.(op)
		switch {
		case o.Do == "read":
			return o.Was == state, state
		case o.Do == "write" || o.Was == state:
			return true, o.Value
		default: // a swap that found something else
			return output == unknown, state
		}
	},
}

func describe(o op) string {
	text := o.Do + " of " + o.Key
	if o.Was != "" {
		text += " that saw " + o.Was
	}
	if o.Value != "" {
		text += " to " + o.Value
	}
	from, to := o.Call.Round(time.Millisecond), o.Return.Round(time.Millisecond)
	return fmt.Sprintf("%s at %s from %s to %s (%s)", text, o.Head, from, to, o.Outcome)
}
