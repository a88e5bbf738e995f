package state

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/learnt"
)

// maxLearnt is how many models the metrics of what was learnt have, besides all models.
const maxLearnt = 10

// allModels is the value of label model for all of them.
const allModels = "all"

var expectedDesc = prometheus.NewDesc("trivet_step_expected_seconds",
	"How long steps took in earlier runs, by model (the 10 with the most runs, and all), boot step or the `use` of an "+
		"action, and quantile (0.5, 0.95, 0.999), in what this head knows: each head shows that of the site.",
	[]string{"model", "step", "quantile"}, nil)

var avoidedDesc = prometheus.NewDesc("trivet_models_avoided",
	"Models whose machines fail more often than others, so that placement prefers those.", nil, nil)

// Describe implements [prometheus.Collector].
func (l *Learnt) Describe(to chan<- *prometheus.Desc) {
	to <- expectedDesc
	to <- avoidedDesc
}

// Collect implements [prometheus.Collector].
func (l *Learnt) Collect(to chan<- prometheus.Metric) {
	b, avoided := l.Book(), 0
	for name := range b.Models {
		if b.Avoids(name) {
			avoided++
		}
	}
	to <- prometheus.MustNewConstMetric(avoidedDesc, prometheus.GaugeValue, float64(avoided))
	for _, name := range mostRuns(b) {
		for _, step := range slices.Concat(trivet.BootSteps, trivet.ActionUses) {
			h := b.Models[name].Steps[step]
			if len(h) == 0 {
				continue
			}
			for _, q := range []float64{0.5, 0.95, 0.999} {
				to <- prometheus.MustNewConstMetric(expectedDesc, prometheus.GaugeValue, h.Quantile(q).Seconds(),
					cmp.Or(name, allModels), step, strconv.FormatFloat(q, 'g', -1, 64))
			}
		}
	}
}

// mostRuns returns the models with the most runs, all models first.
func mostRuns(b *learnt.Book) []string {
	names := slices.SortedFunc(maps.Keys(b.Models), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.Models[y].Runs, b.Models[x].Runs), cmp.Compare(x, y))
	})
	// all models has the most runs; a model that is called as its label would be a second one
	names = slices.DeleteFunc(names, func(name string) bool { return name == allModels })
	return names[:min(len(names), maxLearnt+1)]
}
