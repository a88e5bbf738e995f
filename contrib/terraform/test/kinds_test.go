package test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/trivet-project/trivet"
)

// life is the configurations of one kind in its life.
type life struct {
	kind, project string
	first, same   string // a spec and the same one in another form
	second        string // changes fields of the first one and has none of it less
	drift         string // a merge patch of a field that second sets
	other         string // a merge patch of a field that no configuration sets
	updates       string // what the change from first to second does
}

const noop = "actions: [{name: a, use: noop, with: {sleep: 1s}, timeout: 10m}]\n"

var lives = []life{
	{kind: "machine", first: "rack: r1\ncordoned: false\nnics: [{mac: '52:54:00:00:00:01'}]\n",
		same:   `{"nics":[{"mac":"52:54:00:00:00:01"}],"rack":"r1","cordoned":false}`,
		second: "rack: r2\ncordoned: true\nnics: [{mac: '52:54:00:00:00:01'}]\n",
		drift:  `{"spec":{"cordoned":null}}`, other: `{"spec":{"journal":"/dev/vdb","arch":"amd64"}}`, updates: "update"},
	{kind: "template", project: "web", first: noop, same: strings.Replace(noop, "10m", "600s", 1),
		second: strings.Replace(noop, "10m", "20m", 1), updates: "update",
		drift: `{"spec":{"actions":[{"name":"b","use":"noop"}]}}`, other: `{"spec":{"description":"by hand"}}`},
	{kind: "network", first: "cidr: 10.1.0.0/24\nlease: 1h\nranges: [{from: 10.1.0.5, to: 10.1.0.9}]\n",
		same:   `{"cidr":"10.1.0.0/24","lease":"60m","ranges":[{"to":"10.1.0.9","from":"10.1.0.5"}]}`,
		second: "cidr: 10.1.0.0/24\nlease: 2h\nranges: [{from: 10.1.0.5, to: 10.1.0.9}]\n",
		drift:  `{"spec":{"lease":"3h"}}`, other: `{"spec":{"domain":"lab.example.org"}}`, updates: "update"},
	{kind: "secret", project: "web", first: "addresses: [10.0.8.0/24]\n", same: `{"addresses":["10.0.8.0/24"]}`,
		second: "addresses: [10.0.9.0/24]\n", drift: `{"spec":{"addresses":null}}`, other: `{"spec":{"insecure":true}}`,
		updates: "update"},
	{kind: "account", first: "role: viewer\n", same: `{"role": "viewer"}`, second: "role: operator\n",
		drift: `{"spec":{"role":"admin"}}`, other: `{"labels":{"team":"x"}}`, updates: "update"},
	{kind: "provision", project: "web", first: "template: shared/t\nselector: {pool: web}\n",
		same:   `{"selector":{"pool":"web"},"template":"shared/t"}`,
		second: "template: shared/t\nselector: {pool: db}\n", updates: "replace",
		drift: `{"spec":{"selector":{"pool":"x"}}}`, other: `{"spec":{"hostname":"h"}}`},
}

// Each kind is created, has an empty plan then, is changed, found changed outside, imported, renamed and destroyed.
func TestLifeOfEachKind(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.head.Apply("{kind: Template, project: shared, name: t, spec: {" + strings.TrimSuffix(noop, "\n") + "}}")
	for _, l := range lives {
		t.Run(l.kind, func(t *testing.T) {
			on := &site{core: configured(t, providerConfig(s.head)), head: s.head, client: s.client}
			l.run(on)
		})
	}
}

func (l *life) run(s *site) {
	config := object{"name": "one", "spec": l.first, "labels": map[string]any{"owner": "tf"}}
	if l.project != "" {
		config["project"] = l.project
	}
	if l.kind == "provision" {
		config["wait"] = false
	}
	r := s.resource("trivet_" + l.kind)
	r.mustApply("create", config)
	uid := r.get("uid")
	r.mustBeDone(config.with("spec", l.same))
	r.mustApply(l.updates, config.with("spec", l.second, "labels", map[string]any{"owner": "tf", "env": "prod"}))
	if (r.get("uid") == uid) != (l.updates == "update") {
		s.Errorf("%s: the uid was %s and is %s", l.updates, uid, r.get("uid"))
	}
	config = config.with("spec", l.second)
	r.mustApply("update", config)
	if _, has := l.record(s, "one").Labels["env"]; has {
		s.Error("a label that the configuration dropped is still there")
	}
	l.expectDrift(s, r, config)
	l.expectImport(s, config)
	l.expectDeletedOutside(s, r, config)
	r.mustApply("replace", config.with("name", "two"))
	if !s.isGone(l.kind, l.project, "one") || s.isGone(l.kind, l.project, "two") {
		s.Error("the old name still exists, or the new one does not")
	}
	r.mustDestroy()
	if !s.isGone(l.kind, l.project, "two") {
		s.Error("it exists after its destruction")
	}
}

// record returns the record as it is.
func (l *life) record(s *site, name string) (d struct {
	trivet.Meta
	Spec map[string]any `json:"spec"`
}) {
	s.Helper()
	raw, err := s.records(l.kind).In(l.project).Raw(s.Context(), name)
	if err != nil {
		s.Fatal(err)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		s.Fatal(err)
	}
	return d
}

// expectDrift changes the record outside: a change of what the configuration sets is planned away, and no other.
func (l *life) expectDrift(s *site, r *instance, config object) {
	s.Helper()
	s.patch(l.kind, l.project, "one", l.other)
	r.mustBeDone(config)
	before := l.record(s, "one")
	s.patch(l.kind, l.project, "one", l.drift)
	s.patch(l.kind, l.project, "one", `{"labels":{"owner":"me","mine":"yes"}}`)
	if text := r.read(); text != "" {
		s.Fatal(text)
	}
	p, text := r.plan(config)
	if text != "" || p.action() == "none" || !slices.Contains(p.changed(), "spec") ||
		!slices.Contains(p.changed(), "labels") {
		s.Errorf("a change outside is not planned away: %s", describe(p, text))
	}
	r.mustApply(l.updates, config)
	after := l.record(s, "one")
	want, got := specOf(before.Spec), specOf(after.Spec)
	if l.updates == "update" && (got != want || after.Labels["mine"] != "yes") {
		s.Errorf("after the drift: %s with %v; want %s and all labels of others", got, after.Labels, want)
	}
}

func specOf(spec map[string]any) string {
	text, _ := json.Marshal(spec)
	return string(text)
}

// expectImport imports the record: the plan of its configuration is empty, and a change then is made.
func (l *life) expectImport(s *site, config object) {
	s.Helper()
	id := trivet.FullName(l.project, "one")
	r := s.resource("trivet_" + l.kind)
	if text := r.importID(id); text != "" {
		s.Fatal(text)
	}
	if l.kind == "provision" {
		config = config.with("wait", true)
	}
	r.mustBeDone(config)
	before := l.record(s, "one")
	r.mustApply("update", config.with("annotations", map[string]any{"by": "import"}))
	after := l.record(s, "one")
	if after.Annotations["by"] != "import" || specOf(before.Spec) != specOf(after.Spec) {
		s.Errorf("after the import and a change of annotations: %+v; was %+v", after, before)
	}
	missing := s.resource("trivet_" + l.kind)
	if text := missing.importID(trivet.FullName(l.project, "absent")); text != "" || missing.exists() {
		s.Errorf("import of what does not exist: %q, in the state: %v", text, missing.exists())
	}
	if text := missing.importID("Not/A/Name"); !strings.Contains(text, "write NAME, or PROJECT/NAME") {
		s.Errorf("import of a wrong name: %q", text)
	}
}

// expectDeletedOutside deletes the record outside: it leaves the state and is created again.
func (l *life) expectDeletedOutside(s *site, r *instance, config object) {
	s.Helper()
	if err := s.records(l.kind).In(l.project).Delete(s.Context(), "one"); err != nil {
		s.Fatal(err)
	}
	if text := r.read(); text != "" || r.exists() {
		s.Errorf("deleted outside: %q, in the state: %v", text, r.exists())
	}
	r.mustApply("create", config)
}
