// Package dashboards_test runs the queries of the dashboards and alerts in the real Prometheus, which finds real heads
// by their service discovery, and scrapes them while machines install, one fails and a head is killed. Each query must
// return data. With UPDATE=1 the dashboards are drawn from that data into docs/images.
package dashboards_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	root      = "../.."
	rulesFile = root + "/deploy/prometheus/alerts.yaml"
	boardsDir = root + "/deploy/grafana"
)

// dashboard is what the test reads of a dashboard of Grafana.
type dashboard struct {
	UID        string
	Title      string
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
	file   string
}

type panel struct {
	ID          int
	Type, Title string
	DataSource  struct{ UID string }
	GridPos     struct{ X, Y, W, H int }
	FieldConfig struct {
		Defaults struct {
			Unit   string
			Custom struct{ Stacking struct{ Mode string } }
		}
	}
	Targets []query
	results [][]series // of each target
}

type query struct {
	Expr, LegendFormat string
	DataSource         struct{ UID string }
}

func dashboards(t *testing.T) (all []*dashboard) {
	t.Helper()
	files, err := filepath.Glob(boardsDir + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has the dashboards %v, %v", boardsDir, files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := &dashboard{file: strings.TrimSuffix(filepath.Base(file), ".json")}
		if err := json.Unmarshal(text, d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, d)
	}
	return all
}

// Dashboards have the variables that their queries use, panels that do not overlap, and names of their own.
func TestDashboardsAreWellFormed(t *testing.T) {
	t.Parallel()
	uids := map[string]bool{}
	for _, d := range dashboards(t) {
		if d.UID == "" || uids[d.UID] || d.Title == "" {
			t.Errorf("%s: uid %q, title %q", d.file, d.UID, d.Title)
		}
		uids[d.UID] = true
		if v := d.Templating.List; len(v) != 2 || v[0].Name != "datasource" || v[0].Type != "datasource" ||
			v[1].Name != "job" {
			t.Errorf("%s: the variables are %v", d.file, v)
		}
		taken, ids, titles := map[[2]int]string{}, map[int]bool{}, map[string]bool{}
		for _, p := range d.Panels {
			if p.Title == "" || titles[p.Type+p.Title] || ids[p.ID] || p.FieldConfig.Defaults.Unit == "" ||
				len(p.Targets) == 0 || p.DataSource.UID != "${datasource}" {
				t.Errorf("%s: panel %d %q is not complete, or exists twice", d.file, p.ID, p.Title)
			}
			titles[p.Type+p.Title], ids[p.ID] = true, true
			for _, q := range p.Targets {
				if q.DataSource.UID != "${datasource}" || !strings.Contains(q.Expr, `job="$job"`) {
					t.Errorf("%s: %s: a query is not of the selected source and job: %s", d.file, p.Title, q.Expr)
				}
			}
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
						t.Fatalf("%s: %s is over %s, or too wide", d.file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// Every query of the dashboards and every alert has data in a Prometheus that is configured as the documentation says.
func TestQueriesHaveData(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := startPrometheus(t, s.heads[0])
	p.awaitTargets("head0", "head1", "head2")
	began := time.Now()
	s.install(p)
	s.killAHead(p)
	p.checkRecords(s)
	update := os.Getenv("UPDATE") != ""
	if update {
		time.Sleep(8 * time.Second) // the drawings show what follows, too
	}
	end := time.Now()
	all := dashboards(t)
	for _, d := range all {
		for i := range d.Panels {
			p.checkPanel(d, &d.Panels[i], began, end)
		}
	}
	p.checkAlerts()
	if !update || t.Failed() {
		return
	}
	for _, d := range all {
		file := filepath.Join(root, "docs/images", "dashboard-"+d.file+".svg")
		if err := os.WriteFile(file, []byte(draw(d, began, end)), 0o644); err != nil {
			t.Error(err)
		}
	}
}

var legendLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)

// checkPanel runs the queries of a panel over the time of the test. Each must return a number.
func (p *prometheus) checkPanel(d *dashboard, at *panel, began, end time.Time) {
	p.Helper()
	for _, q := range at.Targets {
		expr := strings.NewReplacer("$__rate_interval", "8s", "$__range", fmt.Sprintf("%ds",
			int(end.Sub(began).Seconds())), "$job", "trivet").Replace(q.Expr)
		all, err := p.queryRange(expr, began, end)
		if err != nil {
			p.Errorf("%s: %s: %s: %v", d.file, at.Title, expr, err)
		}
		if err == nil && !haveNumber(all) {
			p.Errorf("%s: %s: no data: %s", d.file, at.Title, expr)
		}
		for i := range all {
			for _, label := range legendLabel.FindAllStringSubmatch(q.LegendFormat, -1) {
				if all[i].labels[label[1]] == "" {
					p.Errorf("%s: %s: a series has no label %s: %v", d.file, at.Title, label[1], all[i].labels)
				}
			}
			all[i].name = legendLabel.ReplaceAllStringFunc(q.LegendFormat, func(m string) string {
				return all[i].labels[strings.Trim(m, "{}")]
			})
		}
		at.results = append(at.results, all)
	}
}

func haveNumber(all []series) bool {
	return slices.ContainsFunc(all, func(s series) bool {
		return slices.ContainsFunc(s.points, func(p point) bool { return isNumber(p.value) })
	})
}

func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

var (
	alertRule = regexp.MustCompile(`(?m)^  - alert: (\w+)\n    expr: (.*)$`)
	compared  = regexp.MustCompile(`^(.*) (?:==|>|<) [^=<>]*$`)
)

// checkAlerts checks that Prometheus has loaded and evaluated each alert, and that what it compares has a value now.
func (p *prometheus) checkAlerts() {
	p.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		p.Fatal(err)
	}
	health := p.rules()
	rules := alertRule.FindAllStringSubmatch(string(text), -1)
	if len(rules) < 20 || len(rules) != len(health) {
		p.Errorf("%d alerts in the file, %d in Prometheus", len(rules), len(health))
	}
	for _, rule := range rules {
		if health[rule[1]] != "ok" {
			p.Errorf("%s: its evaluation is %q", rule[1], health[rule[1]])
		}
		expr := compared.FindStringSubmatch(rule[2])
		if expr == nil {
			p.Errorf("%s compares nothing: %s", rule[1], rule[2])
			continue
		}
		if all, err := p.query(expr[1]); err != nil || !haveNumber(all) {
			p.Errorf("%s: no data: %s, %v", rule[1], expr[1], err)
		}
	}
}
