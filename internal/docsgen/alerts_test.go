package docsgen

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const alertsFile, limitsPage = root + "/deploy/prometheus/alerts.yaml", root + "/docs/limits.md"

var (
	alertName  = regexp.MustCompile(`(?m)^  - alert: (\w+)$`)
	metricName = regexp.MustCompile(`trivet_\w+`)
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The alerts and the page of limits name metrics that exist, and the page explains every alert.
func TestAlertsAndLimitsNameWhatExists(t *testing.T) {
	all, err := findMetrics(root)
	if err != nil {
		t.Fatal(err)
	}
	alerts, page := read(t, alertsFile), read(t, limitsPage)
	for _, name := range metricName.FindAllString(alerts+page, -1) {
		base := strings.TrimSuffix(name, "_bucket")
		if !slices.ContainsFunc(all, func(m metric) bool { return m.name == base }) {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, m := range alertName.FindAllStringSubmatch(alerts, -1) {
		if !strings.Contains(page, "`"+m[1]+"`") {
			t.Errorf("docs/limits.md does not explain the alert %s", m[1])
		}
	}
	for _, name := range regexp.MustCompile("`(Trivet[A-Z]\\w+)`").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(alerts, "alert: "+name[1]+"\n") {
			t.Errorf("there is no alert %s", name[1])
		}
	}
}

// Prometheus's own tool accepts the rules; the series of a good head raise no alert, those of a bad one all of them.
func TestAlertsFire(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Fatal("promtool is missing: apt-get install -y --no-install-recommends prometheus")
	}
	alerts, cases := read(t, alertsFile), read(t, "testdata/alerts_test.yaml")
	if n := len(alertName.FindAllString(alerts, -1)); !strings.Contains(cases, fmt.Sprintf("value: %d}", n)) {
		t.Errorf("testdata/alerts_test.yaml does not expect that all %d alerts fire", n)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"alerts.yaml": alerts, "alerts_test.yaml": cases} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.Command("promtool", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
