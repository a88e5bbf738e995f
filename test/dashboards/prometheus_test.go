package dashboards_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivet-project/trivet/internal/testhead"
)

// prometheus is a Prometheus that scrapes heads.
type prometheus struct {
	*testing.T
	url string
}

// series is one series of a query's result.
type series struct {
	labels map[string]string
	points []point
	name   string // in the legend
}

type point struct {
	at    time.Time
	value float64
}

// startPrometheus starts a Prometheus with the configuration that a head prints, the alerts, and short intervals.
func startPrometheus(t *testing.T, h *testhead.Head) *prometheus {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	printed := h.MustTrivet("prometheus", "--dir", dir)
	config := fmt.Sprintf("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [%q]\n%s\n", rules, printed)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := testhead.NewAddress() + ":9090"
	process, err := testhead.Start(testhead.Command("", "prometheus", "--config.file", file, "--storage.tsdb.path",
		filepath.Join(dir, "data"), "--web.listen-address", address))
	if err != nil {
		t.Fatalf("%v: apt-get install -y --no-install-recommends prometheus", err)
	}
	t.Cleanup(func() {
		process.Kill()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", process.Log)
		}
	})
	return &prometheus{t, "http://" + address}
}

// get reads a path of the API of Prometheus.
func (p *prometheus) get(path string, params url.Values, into any) error {
	resp, err := http.Get(p.url + path + "?" + params.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s: %s: %s, %w", path, resp.Status, answer.Error, err)
	}
	return json.Unmarshal(answer.Data, into)
}

// awaitTargets waits until Prometheus has scraped exactly these heads, each by its name.
func (p *prometheus) awaitTargets(heads ...string) {
	p.Helper()
	p.await("the targets", func() error {
		var found struct {
			ActiveTargets []struct {
				Labels            map[string]string
				Health, LastError string
			}
		}
		if err := p.get("/api/v1/targets", nil, &found); err != nil {
			return err
		}
		var up []string
		for _, t := range found.ActiveTargets {
			if t.Health != "up" {
				return fmt.Errorf("%s is %s: %s", t.Labels["head"], t.Health, t.LastError)
			}
			up = append(up, t.Labels["head"])
		}
		if slices.Sort(up); !slices.Equal(up, heads) {
			return fmt.Errorf("the targets are %v", up)
		}
		return nil
	})
}

func (p *prometheus) await(what string, try func() error) {
	p.Helper()
	(&testhead.Head{T: p.T, Name: "prometheus"}).Await(what, try)
}

// awaitValue waits until a query returns one number.
func (p *prometheus) awaitValue(expr string, want float64) {
	p.Helper()
	p.await(expr, func() error {
		all, err := p.query(expr)
		if err != nil || len(all) != 1 || all[0].points[0].value != want {
			return fmt.Errorf("want %v: %v, %w", want, all, err)
		}
		return nil
	})
}

func (p *prometheus) query(expr string) ([]series, error) {
	return p.result("/api/v1/query", url.Values{"query": {expr}})
}

func (p *prometheus) queryRange(expr string, began, end time.Time) ([]series, error) {
	return p.result("/api/v1/query_range", url.Values{"query": {expr}, "step": {"1"},
		"start": {began.UTC().Format(time.RFC3339Nano)}, "end": {end.UTC().Format(time.RFC3339Nano)}})
}

func (p *prometheus) result(path string, params url.Values) (all []series, err error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  []any   // time and value
			Values [][]any // of a range
		}
	}
	if err := p.get(path, params, &data); err != nil {
		return nil, err
	}
	for _, r := range data.Result {
		s := series{labels: r.Metric}
		if r.Value != nil {
			r.Values = append(r.Values, r.Value)
		}
		for _, v := range r.Values {
			value, err := strconv.ParseFloat(v[1].(string), 64)
			if err != nil {
				return nil, err
			}
			seconds, nanos := math.Modf(v[0].(float64))
			s.points = append(s.points, point{time.Unix(int64(seconds), int64(nanos*1e9)), value})
		}
		all = append(all, s)
	}
	return all, nil
}

// rules returns the health of each alert.
func (p *prometheus) rules() map[string]string {
	p.Helper()
	var found struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get("/api/v1/rules", nil, &found); err != nil {
		p.Fatal(err)
	}
	health := map[string]string{}
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			health[r.Name] = strings.TrimSpace(r.Health + " " + r.LastError)
		}
	}
	return health
}
