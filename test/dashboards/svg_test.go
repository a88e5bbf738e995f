package dashboards_test

import (
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The dashboards are drawn as Grafana lays them out, in the few forms that they use: one number, or lines over time.

// Sizes in pixels: of a cell of the grid, and the gap between panels.
const (
	cellWidth, cellHeight = 50, 30
	gap                   = 8
	mostLines             = 8 // of a panel
)

var colors = []string{"#3b7ddd", "#e0752d", "#3f9142", "#c4404b", "#8a5bbf", "#8c6d31", "#d05aa6", "#4b8b99"}

// drawing is an SVG that is being made.
type drawing struct {
	strings.Builder
	began, end time.Time
}

func draw(d *dashboard, began, end time.Time) string {
	s := &drawing{began: began, end: end}
	width, height := 24*cellWidth, 0
	for _, p := range d.Panels {
		height = max(height, (p.GridPos.Y+p.GridPos.H)*cellHeight)
	}
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -30 %d %d" font-family="sans-serif">`+
		"\n<rect y=\"-30\" width=\"%d\" height=\"%d\" fill=\"#f4f5f5\"/>\n", width, height+30, width, height+30)
	s.text(gap, -9, "16", "#24292e", "start", d.Title)
	for i := range d.Panels {
		s.panel(&d.Panels[i])
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func (s *drawing) text(x, y float64, size, color, anchor, text string) {
	fmt.Fprintf(s, "<text x=\"%s\" y=\"%s\" font-size=\"%s\" fill=\"%s\" text-anchor=\"%s\">%s</text>\n", px(x), px(y),
		size, color, anchor, html.EscapeString(text))
}

func px(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// panel draws a panel in its place.
func (s *drawing) panel(p *panel) {
	g := p.GridPos
	x, y := float64(g.X*cellWidth+gap/2), float64(g.Y*cellHeight+gap/2)
	w, h := float64(g.W*cellWidth-gap), float64(g.H*cellHeight-gap)
	fmt.Fprintf(s, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\" rx=\"2\" fill=\"#fff\" stroke=\"#dcdee0\"/>\n",
		px(x), px(y), px(w), px(h))
	s.text(x+8, y+17, "12", "#24292e", "start", p.Title)
	if p.Type == "stat" {
		s.text(x+w/2, y+h/2+22, "30", colors[2], "middle", shown(last(p.results[0]), p.FieldConfig.Defaults.Unit))
		return
	}
	lines := p.lines()
	top := highest(lines)
	left, right, up, down := x+62, x+w-10, y+28, y+h-52
	s.axes(left, right, up, down, top, p.FieldConfig.Defaults.Unit)
	legend, row := x+12, y+h-24
	for i, l := range lines {
		color := colors[i%len(colors)]
		s.line(l, left, right, up, down, top, color)
		name := l.name
		if i == mostLines-1 && countLines(p) > mostLines {
			name += fmt.Sprintf(" and %d more", countLines(p)-mostLines)
		}
		width := 28 + 6*float64(len([]rune(name)))
		if legend+width > x+w {
			legend, row = x+12, y+h-9
		}
		fmt.Fprintf(s, "<rect x=\"%s\" y=\"%s\" width=\"10\" height=\"3\" fill=\"%s\"/>\n", px(legend), px(row-4), color)
		s.text(legend+14, row, "11", "#52545c", "start", name)
		legend += width
	}
}

func countLines(p *panel) (n int) {
	for _, r := range p.results {
		n += len(r)
	}
	return n
}

// lines returns the series of a panel with the highest values, in order of name; of stacked ones, their sums.
func (p *panel) lines() []series {
	all := slices.Concat(p.results...)
	slices.SortStableFunc(all, func(a, b series) int {
		return cmp.Compare(highest([]series{b}), highest([]series{a}))
	})
	all = slices.Clone(all[:min(len(all), mostLines)])
	slices.SortFunc(all, func(a, b series) int { return cmp.Compare(a.name, b.name) })
	if p.FieldConfig.Defaults.Custom.Stacking.Mode == "normal" {
		below := map[time.Time]float64{}
		for i := range all {
			all[i].points = slices.Clone(all[i].points)
			for j, at := range all[i].points {
				below[at.at] += at.value
				all[i].points[j].value = below[at.at]
			}
		}
	}
	return all
}

// axes draws the times, and four values of which the last is at least the highest of the lines.
func (s *drawing) axes(left, right, up, down, top float64, unit string) {
	for i := range 5 {
		at := down - (down-up)*float64(i)/4
		fmt.Fprintf(s, "<path d=\"M%s %sH%s\" stroke=\"#e9eaec\"/>\n", px(left), px(at), px(right))
		s.text(left-6, at+4, "10", "#6e7079", "end", shown(top*float64(i)/4, unit))
	}
	length := s.end.Sub(s.began)
	for i := range 5 {
		at := left + (right-left)*float64(i)/5
		s.text(at, down+14, "10", "#6e7079", "start", (length * time.Duration(i) / 5).Round(time.Second).String())
	}
}

// line draws a series. It is interrupted where there is no value.
func (s *drawing) line(of series, left, right, up, down, top float64, color string) {
	var path strings.Builder
	move, length := "M", s.end.Sub(s.began).Seconds()
	for _, p := range of.points {
		if !isNumber(p.value) {
			move = "M"
			continue
		}
		x := left + (right-left)*p.at.Sub(s.began).Seconds()/length
		fmt.Fprintf(&path, "%s%s %s", move, px(x), px(down-(down-up)*max(0, p.value)/top))
		move = "L"
	}
	fmt.Fprintf(s, "<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\"/>\n", path.String(), color)
}

// highest returns a round number that is at least each value.
func highest(lines []series) float64 {
	top := 0.0
	for _, l := range lines {
		for _, p := range l.points {
			if isNumber(p.value) {
				top = max(top, p.value)
			}
		}
	}
	if top == 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(top)))
	for _, round := range []float64{1, 2, 4, 5, 8, 10} {
		if round*unit >= top {
			return round * unit
		}
	}
	return top
}

func last(all []series) float64 {
	if len(all) == 0 || len(all[0].points) == 0 {
		return math.NaN()
	}
	return all[0].points[len(all[0].points)-1].value
}

// shown formats a value as Grafana does by the unit of the panel.
func shown(v float64, unit string) string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
	scaled := func(v, step float64, units ...string) string {
		i := 0
		for ; v >= step && i < len(units)-1; i++ {
			v /= step
		}
		if v >= 100 {
			return strconv.FormatFloat(v, 'f', 0, 64) + " " + units[i]
		}
		return number(v) + " " + units[i]
	}
	switch {
	case math.IsNaN(v):
		return "no data"
	case unit == "percentunit":
		return number(100*v) + " %"
	case unit == "bytes":
		return scaled(v, 1024, "B", "KiB", "MiB", "GiB", "TiB")
	case unit == "Bps":
		return scaled(v, 1000, "B/s", "kB/s", "MB/s", "GB/s")
	case v == 0 && unit == "s":
		return "0 s"
	case unit == "s" && v >= 86400:
		return number(v/86400) + " days"
	case unit == "s" && v >= 120:
		return number(v/60) + " min"
	case unit == "s" && v < 1:
		return scaled(v*1e6, 1000, "µs", "ms", "s")
	case unit == "s":
		return number(v) + " s"
	}
	suffix := map[string]string{"cpm": " /min", "ops": " /s", "reqps": " /s", "pps": " /s"}[unit]
	return strings.TrimSpace(scaled(v, 1000, "", "K", "M", "G")) + suffix
}
