package store_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
	"github.com/trivet-project/trivet/internal/storetest"
)

// projects is a store with records of projects.
type projects struct {
	*store.Store
	templates  *store.Table[trivet.Template]
	provisions *store.Table[trivet.Provision]
	machines   *store.Table[trivet.Machine]
}

func openProjects(t *testing.T) *projects {
	return storetest.New(t, func(s *store.Store) *projects {
		return &projects{s, store.NewTable[trivet.Template](s), store.NewTable[trivet.Provision](s),
			store.NewTable[trivet.Machine](s)}
	})
}

func (p *projects) must(t *testing.T, do func(tx *store.Tx) error) {
	t.Helper()
	if _, err := p.Update(t.Context(), do); err != nil {
		t.Fatal(err)
	}
}

func templateIn(project, name, action string) *trivet.Template {
	return &trivet.Template{Meta: trivet.Meta{Project: project, Name: name},
		Spec: trivet.TemplateSpec{Actions: []trivet.Action{{Name: action, Use: "noop"}}}}
}

// Records of one name in two projects are two records.
func TestProjectsAreIndependent(t *testing.T) {
	t.Parallel()
	p := openProjects(t)
	p.must(t, func(tx *store.Tx) error {
		return errors.Join(p.templates.In(tx).Create(templateIn("blue", "t", "a")),
			p.templates.In(tx).Create(templateIn("green", "t", "b")),
			p.templates.In(tx).Create(templateIn("blue-2", "u", "c")))
	})
	for full, action := range map[string]string{"blue/t": "a", "green/t": "b", "blue-2/u": "c"} {
		r, err := p.templates.Get(full)
		if err != nil || r.FullName() != full || r.Spec.Actions[0].Name != action {
			t.Errorf("%s is %+v, %v", full, r, err)
		}
	}
	if names := p.templates.Names(); !slices.Equal(names, []string{"blue-2/u", "blue/t", "green/t"}) {
		t.Errorf("the names are %v", names)
	}
	for project, want := range map[string]int{"blue": 1, "green": 1, "blue-2": 1, "": 3, "none": 0} {
		if list, _ := p.List("Template", project, "", 0); len(list) != want {
			t.Errorf("project %q has %d records, want %d", project, len(list), want)
		}
	}
	if list, _ := p.List("Template", "", "blue/t", 0); len(list) != 1 || list[0].Name() != "green/t" {
		t.Errorf("after blue/t there are %v", list)
	}
	p.must(t, func(tx *store.Tx) error { return p.templates.In(tx).Delete("blue/t") })
	if _, err := p.templates.Get("green/t"); err != nil {
		t.Error(err)
	}
}

// References are followed within the project, also by deletions.
func TestReferrersOfAProject(t *testing.T) {
	t.Parallel()
	p := openProjects(t)
	provision := func(project, name, template string) *trivet.Provision {
		return &trivet.Provision{Meta: trivet.Meta{Project: project, Name: name},
			Spec: trivet.ProvisionSpec{Template: template, Machine: "m1"}}
	}
	p.must(t, func(tx *store.Tx) error {
		return errors.Join(p.templates.In(tx).Create(templateIn("blue", "t", "a")),
			p.templates.In(tx).Create(templateIn("green", "t", "a")),
			p.templates.In(tx).Create(templateIn("shared", "t", "a")),
			p.provisions.In(tx).Create(provision("blue", "own", "t")),
			p.provisions.In(tx).Create(provision("blue", "library", "shared/t")),
			p.provisions.In(tx).Create(provision("shared", "own", "t")))
	})
	for full, want := range map[string]string{
		"blue/t": "blue/own", "green/t": "", "shared/t": "blue/library shared/own",
	} {
		var got []string
		p.must(t, func(tx *store.Tx) error {
			got = nil
			template, err := p.templates.In(tx).Get(full)
			if err != nil {
				return err
			}
			for _, r := range tx.Referrers(template) {
				got = append(got, r.Record.Header().FullName())
			}
			return nil
		})
		if strings.Join(got, " ") != want {
			t.Errorf("%v refer to %s, want %s", got, full, want)
		}
	}
}

// A record of a project that is addressed without its project is a mistake of the program, which panics: otherwise the
// records of two projects were mistaken for each other. A record of the cluster with a project is refused.
func TestMissingProjectPanics(t *testing.T) {
	t.Parallel()
	p := openProjects(t)
	inTx := func(do func(tx *store.Tx) error) func() error {
		return func() error {
			_, err := p.Update(t.Context(), do)
			return err
		}
	}
	for what, do := range map[string]func() error{
		"read": func() error { _, err := p.templates.Get("t"); return err },
		"raw":  func() error { _, err := p.Get("Template", "t"); return err },
		"read in a transaction": inTx(func(tx *store.Tx) error {
			_, err := p.templates.In(tx).Get("t")
			return err
		}),
		"generic read": inTx(func(tx *store.Tx) error { _, err := tx.Record("Template", "t"); return err }),
		"write":        inTx(func(tx *store.Tx) error { return p.templates.In(tx).Put(templateIn("", "t", "a")) }),
		"generic write": inTx(func(tx *store.Tx) error {
			return tx.PutRaw("Template", "t", []byte(`{"spec":{}}`))
		}),
		"delete": inTx(func(tx *store.Tx) error { return p.templates.In(tx).Delete("t") }),
	} {
		if got := panicOf(do); !strings.Contains(got, "without its project") {
			t.Errorf("%s: %s, want a panic", what, got)
		}
	}
	for what, do := range map[string]func() error{
		"a project of a cluster kind": inTx(func(tx *store.Tx) error {
			return p.machines.In(tx).Put(&trivet.Machine{Meta: trivet.Meta{Project: "blue", Name: "m1"}})
		}),
		"an invalid project": inTx(func(tx *store.Tx) error {
			return p.templates.In(tx).Put(templateIn("Blue", "t", "a"))
		}),
	} {
		if err := do(); !errors.Is(err, trivet.ErrInvalid) {
			t.Errorf("%s: %v, want an error", what, err)
		}
	}
}

// panicOf returns what a function panics with, or its error.
func panicOf(do func() error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	return fmt.Sprint(do())
}
