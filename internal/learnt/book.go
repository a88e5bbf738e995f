// Package learnt holds what is learnt of runs that have ended: how long each step takes on machines of each model, and
// how often machines and models fail. From it come the time that is left of a run, when a step is late, and which
// machines placement prefers. It is pure: nothing here reads a clock.
package learnt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/trivet-project/trivet"
)

// Book is what was learnt. Each head has one of the runs that it counted; all of them together are a merge. It is not
// changed while others read it.
type Book struct {
	// Day is the day up to which weights have decayed, from the beginning of 1970.
	Day int `json:"day"`
	// Models are by name; All has the runs of all models.
	Models map[string]*Model `json:"models,omitempty"`
}

// Model is what was learnt of the machines of a model.
type Model struct {
	Runs     float64                        `json:"runs,omitempty"`     // that succeeded or failed
	Failures map[trivet.FailureType]float64 `json:"failures,omitempty"` // by type
	Steps    map[string]Histogram           `json:"steps,omitempty"`    // by key: see stepKeys
}

// All is the name under which a book has the runs of all models.
const All = ""

// Bounds of a book. Beyond them it drops what has the least weight.
const (
	MaxModels = 50 // besides All
	MaxSteps  = 48 // of a model
	// MaxDocument is how long an encoded book is at most, in bytes.
	MaxDocument = 512 << 10
	maxModel    = 64 // bytes of a name

	// halfLife is after how many days a run has half of its weight.
	halfLife = 30
)

// DayOf returns the day of a time, as in a book.
func DayOf(t time.Time) int { return int(t.Unix() / (24 * 60 * 60)) }

// ModelOf returns the model of a machine by its inventory: vendor and product.
func ModelOf(inv *trivet.Inventory) string {
	const unknown = "unknown"
	if inv == nil {
		return unknown
	}
	text := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.Join(strings.Fields(inv.Vendor+" "+inv.Product), " "))
	if len(text) > maxModel {
		text = strings.ToValidUTF8(text[:maxModel], "")
	}
	return cmp.Or(text, unknown)
}

// Run is a run that has ended.
type Run struct {
	Model     string // of its machine
	Succeeded bool
	Failure   trivet.FailureType // empty unless it failed
	Steps     []Took
}

// Took is a step that was done.
type Took struct {
	Keys []string // see stepKeys
	Time time.Duration
}

// RunOf returns what is learnt of a run that has ended. boot is how long its boot steps took, as far as that is known.
func RunOf(w *trivet.Workflow, inv *trivet.Inventory, boot map[string]time.Duration) Run {
	s := &w.Status
	run := Run{Model: ModelOf(inv), Succeeded: s.State == trivet.WorkflowSucceeded}
	if s.Failure != nil {
		run.Failure = knownType(s.Failure.Type)
	}
	for _, step := range s.Steps {
		took := step.Elapsed.D() // as the agent measured it
		if trivet.IsBootStep(step.Name) {
			took = boot[step.Name]
		}
		if step.State == trivet.StepDone && took > 0 {
			run.Steps = append(run.Steps, Took{stepKeys(w, step.Name), min(took, step.Timeout.D())})
		}
	}
	return run
}

// stepKeys returns the keys of a step: a boot step has its name; an action that of its template, and its use.
func stepKeys(w *trivet.Workflow, step string) []string {
	a := w.Spec.Action(step)
	if a == nil {
		return []string{step}
	}
	keys := []string{trivet.Resolve(w.Project, w.Spec.Template) + "/" + step}
	if slices.Contains(trivet.ActionUses, a.Use) {
		keys = append(keys, a.Use)
	}
	return keys
}

// ofTemplate reports whether a key is that of an action of one template.
func ofTemplate(key string) bool { return strings.Contains(key, "/") }

var failureTypes = []trivet.FailureType{trivet.FaultMachine, trivet.FaultPlatform, trivet.FaultImage,
	trivet.FaultNetwork, trivet.FaultConfiguration, trivet.FaultControlPlane}

// knownType returns the type of a failure. An agent reports it as text.
func knownType(f trivet.FailureType) trivet.FailureType {
	if slices.Contains(failureTypes, f) {
		return f
	}
	return "other"
}

// Add counts a run.
func (b *Book) Add(r Run) {
	for _, name := range slices.Compact([]string{All, r.Model}) {
		m := b.model(name)
		if r.Succeeded || r.Failure != "" {
			m.Runs++
		}
		if r.Failure != "" {
			m.Failures[r.Failure]++
		}
		for _, step := range r.Steps {
			for _, key := range step.Keys {
				if m.Steps[key] == nil {
					m.Steps[key] = Histogram{}
				}
				m.Steps[key].Add(step.Time)
			}
		}
	}
	var steps []string
	for _, step := range r.Steps {
		steps = append(steps, step.Keys...)
	}
	b.limit(r.Model, steps)
}

// model returns a model, which is added where the book has none.
func (b *Book) model(name string) *Model {
	if b.Models == nil {
		b.Models = map[string]*Model{}
	}
	m := b.Models[name]
	if m == nil {
		m = &Model{}
		b.Models[name] = m
	}
	if m.Failures == nil {
		m.Failures = map[trivet.FailureType]float64{}
	}
	if m.Steps == nil {
		m.Steps = map[string]Histogram{}
	}
	return m
}

// Merge returns what several books have learnt, with weights that have decayed up to a day. It changes none of them.
func Merge(day int, books ...*Book) *Book {
	sum := &Book{Day: day}
	for _, b := range books {
		for name, from := range b.At(day).Models {
			to := sum.model(name)
			to.Runs += from.Runs
			for f, weight := range from.Failures {
				to.Failures[f] += weight
			}
			for key, h := range from.Steps {
				if to.Steps[key] == nil {
					to.Steps[key] = Histogram{}
				}
				to.Steps[key].Merge(h)
			}
		}
	}
	sum.limit(All, nil)
	return sum
}

// At returns a copy of the book whose weights have decayed up to a day. They stay as they are where the day is an
// earlier one: the clock of a head was ahead.
func (b *Book) At(day int) *Book {
	by := math.Exp2(-float64(max(day-b.Day, 0)) / halfLife)
	later := &Book{Day: day}
	for name, m := range b.Models {
		scaled := Model{Runs: m.Runs * by, Failures: maps.Clone(m.Failures), Steps: map[string]Histogram{}}
		scaleAll(scaled.Failures, by)
		for key, h := range m.Steps {
			h = maps.Clone(h)
			if h.scale(by); len(h) > 0 {
				scaled.Steps[key] = h
			}
		}
		if scaled.Runs >= negligible || len(scaled.Steps) > 0 {
			*later.model(name) = scaled
		}
	}
	return later
}

func scaleAll(failures map[trivet.FailureType]float64, by float64) {
	for f := range failures {
		if failures[f] *= by; failures[f] < negligible {
			delete(failures, f)
		}
	}
}

// limit drops models, and actions of templates, until the book is within its bounds: those of the least weight, but
// neither the model nor the steps that are to be kept.
func (b *Book) limit(model string, steps []string) {
	for len(b.Models) > MaxModels+1 {
		delete(b.Models, b.lightest(model))
	}
	for _, m := range b.Models {
		for len(m.Steps) > MaxSteps {
			delete(m.Steps, m.lightest(steps))
		}
	}
}

// lightest returns the model of the least weight that is neither All nor one to be kept; All where there is none.
func (b *Book) lightest(keep string) string {
	least := All
	for _, name := range slices.Sorted(maps.Keys(b.Models)) {
		if name != All && name != keep && (least == All || b.Models[name].Runs < b.Models[least].Runs) {
			least = name
		}
	}
	return least
}

// lightest returns the step of the least weight: if possible, an action of a template that is not to be kept.
func (m *Model) lightest(keep []string) string {
	rank := func(key string) int {
		switch {
		case slices.Contains(keep, key):
			return 2
		case ofTemplate(key):
			return 0
		}
		return 1
	}
	return slices.MinFunc(slices.Sorted(maps.Keys(m.Steps)), func(x, y string) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(m.Steps[x].Weight(), m.Steps[y].Weight()))
	})
}

// Encode returns the book as bytes: JSON of at most MaxDocument. It leaves out the models of the least weight beyond
// that.
func (b *Book) Encode() []byte {
	b = b.At(b.Day) // a copy
	sizes, sum := map[string]int{}, len(encode(Book{Day: b.Day, Models: map[string]*Model{}}))
	for name, m := range b.Models {
		m.Runs = rounded(m.Runs)
		for f, weight := range m.Failures {
			m.Failures[f] = rounded(weight)
		}
		sizes[name] = len(encode(map[string]*Model{name: m}))
		sum += sizes[name]
	}
	for sum += len(`,"models":`); sum > MaxDocument; {
		name := b.lightest(All)
		sum -= sizes[name]
		delete(b.Models, name)
	}
	return encode(b)
}

func encode(v any) []byte {
	doc, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("a book cannot be encoded: %v", err)) // numbers and texts always can
	}
	return doc
}

// Decode reads an encoded book.
func Decode(doc []byte) (*Book, error) {
	b := &Book{}
	if err := json.Unmarshal(doc, b); err != nil {
		return nil, fmt.Errorf("it is not a book of this version: %w", err)
	}
	for name, m := range b.Models {
		if m == nil || m.Runs < 0 {
			return nil, fmt.Errorf("model %q of the book is damaged", name)
		}
		b.model(name) // with what it may lack
	}
	b.limit(All, nil)
	return b, nil
}
