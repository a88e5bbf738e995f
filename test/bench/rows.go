package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// report is what a run measured.
type report struct {
	about    []string // the computer and the versions
	sections []*section
}

type section struct {
	title    string
	rows     []row
	commands []string // that were run, as they were
	notes    []string
}

// row is one figure, with the same of a peer where there is one.
type row struct {
	what  string
	unit  string
	ours  float64
	peer  float64
	by    string  // the peer; empty: none
	ratio float64 // of ours to the peer's: the median of the rounds'; 0: ours/peer
	bound bound   // zero: only reported
}

// bound is what must hold for a row.
type bound struct {
	text  string
	holds func(r row) bool
}

func atLeastPeer(ratio float64) bound {
	return bound{fmt.Sprintf("ratio ≥ %g", ratio), func(r row) bool { return r.ratio >= ratio }}
}

func over(limit float64) bound {
	return bound{fmt.Sprintf("> %.6g", limit), func(r row) bool { return r.ours > limit }}
}

func under(limit float64) bound {
	return bound{fmt.Sprintf("< %.6g", limit), func(r row) bool { return r.ours < limit }}
}

// none is for what must not happen.
var none = bound{"0", func(r row) bool { return r.ours == 0 }}

func newReport() *report { return &report{} }

func (r *report) begin(title string) { r.sections = append(r.sections, &section{title: title}) }

func (r *report) now() *section { return r.sections[len(r.sections)-1] }

func (r *report) add(v row) {
	if v.ratio == 0 && v.by != "" {
		v.ratio = v.ours / v.peer // infinite where the peer has nothing to show
	}
	r.now().rows = append(r.now().rows, v)
}

// command notes how something was run, once.
func (r *report) command(text string) {
	if s := r.now(); !slices.Contains(s.commands, text) {
		s.commands = append(s.commands, text)
	}
}

func (r *report) note(format string, args ...any) {
	r.now().notes = append(r.now().notes, fmt.Sprintf(format, args...))
}

// end prints the section that was begun last.
func (r *report) end(w io.Writer, took time.Duration) {
	fmt.Fprintf(w, "\n%s (%s)\n\n%s", r.now().title, took.Round(time.Second), r.now().table())
	for _, n := range r.now().notes {
		fmt.Fprintln(w, "\n"+n)
	}
}

// missed is an error that names every row whose bound does not hold.
func (r *report) missed() error {
	var errs []error
	for _, s := range r.sections {
		for _, v := range s.rows {
			if v.bound.holds != nil && !v.bound.holds(v) {
				errs = append(errs, fmt.Errorf("missed: %s: %s: %s, must be %s", s.title, v.what, v.figures(),
					v.bound.text))
			}
		}
	}
	return errors.Join(errs...)
}

func (v row) figures() string {
	if v.by == "" {
		return fmt.Sprintf("%s %s", number(v.ours), v.unit)
	}
	return fmt.Sprintf("%s %s by %s's %s, ratio %.2f", number(v.ours), v.unit, v.by, number(v.peer), v.ratio)
}

// table is Markdown that can be read as it is.
func (s *section) table() string {
	lines := [][]string{{"What", "Unit", "Trivet", "Peer", "Ratio", "Bound"}, nil}
	beside := slices.ContainsFunc(s.rows, func(v row) bool { return v.by != "" })
	for _, v := range s.rows {
		line := []string{v.what, v.unit, number(v.ours), "", "", "—"}
		if v.by != "" {
			line[3], line[4] = number(v.peer)+" ("+v.by+")", fmt.Sprintf("%.2f", v.ratio)
		}
		if v.bound.holds != nil {
			line[5] = v.bound.text
			if !v.bound.holds(v) {
				line[5] = "**MISSED** " + line[5]
			}
		}
		lines = append(lines, line)
	}
	if !beside {
		for i, line := range lines {
			if line != nil {
				lines[i] = slices.Delete(line, 3, 5)
			}
		}
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for _, line := range lines {
		for i, width := range widths {
			cell := strings.Repeat("-", width)
			if line != nil {
				cell = line[i] + strings.Repeat(" ", width-utf8.RuneCountInString(line[i]))
			}
			fmt.Fprintf(&out, "| %s ", cell)
		}
		out.WriteString("|\n")
	}
	return out.String()
}

// number has three significant digits.
func number(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }

// quantile is the value that a share of the others is below.
func quantile[T cmp.Ordered](values []T, share float64) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]
}

// alone measures one side n times.
func alone(n int, measure func() (float64, error)) (float64, error) {
	var all []float64
	for range n {
		v, err := measure()
		if err != nil {
			return 0, err
		}
		all = append(all, v)
	}
	return median(all), nil
}

// alternate measures both sides n times after one another, in changing order, and compares round with round.
func alternate(n int, ours, peer func() (float64, error)) (row, error) {
	var us, them, ratios []float64
	for i := range n {
		var a, b float64
		var errA, errB error
		if i%2 == 0 {
			a, errA = ours()
			b, errB = peer()
		} else {
			b, errB = peer()
			a, errA = ours()
		}
		if err := errors.Join(errA, errB); err != nil {
			return row{}, err
		}
		us, them, ratios = append(us, a), append(them, b), append(ratios, a/b)
	}
	return row{ours: median(us), peer: median(them), ratio: median(ratios)}, nil
}
