package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/trivet-project/trivet"
)

// outputFlag adds -o.
func (a *app) outputFlag(c *cobra.Command) { a.outputForms(c, "table", "json", "yaml", "name") }

func (a *app) outputForms(c *cobra.Command, forms ...string) {
	all, last := strings.Join(forms[:len(forms)-1], ", "), forms[len(forms)-1]
	c.Flags().StringVarP(&a.output, "output", "o", forms[0], all+" or "+last)
	c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp))
	c.PreRunE = chain(c.PreRunE, func(*cobra.Command, []string) error {
		if slices.Contains(forms, a.output) {
			return nil
		}
		return fmt.Errorf("%w: unknown output format %s; the formats are %s and %s", trivet.ErrInvalid, a.output, all,
			last)
	})
}

type run = func(*cobra.Command, []string) error

func chain(first, then run) run {
	if first == nil {
		return then
	}
	return func(c *cobra.Command, args []string) error {
		if err := first(c, args); err != nil {
			return err
		}
		return then(c, args)
	}
}

// title returns the name of a record with its kind: "machine/m1".
func title(info trivet.KindInfo, name string) string {
	return strings.ToLower(string(info.Kind)) + "/" + name
}

// show prints records in the selected format. one is set for a single record, not a list.
func (a *app) show(info trivet.KindInfo, records []trivet.Record, raw []json.RawMessage, one bool) error {
	switch a.output {
	case "json":
		return showJSON(a.Out, a.withoutManaged(raw), one)
	case "yaml":
		return a.showYAML(raw)
	case "name":
		for _, r := range records {
			name := r.Header().Name
			if a.allProjects {
				name = r.Header().FullName()
			}
			fmt.Fprintln(a.Out, title(info, name))
		}
		return nil
	}
	if len(records) == 0 {
		fmt.Fprintf(a.Err, "no %s\n", info.Plural)
		return nil
	}
	return a.table(info, records)
}

// table prints aligned columns; among all projects, the first one is the project.
func (a *app) table(info trivet.KindInfo, records []trivet.Record) error {
	titles := append([]string{"NAME"}, a.columns(info).titles...)
	if a.showsProject(info) {
		titles = append([]string{"PROJECT"}, titles...)
	}
	rows := [][]string{titles}
	for _, r := range records {
		rows = append(rows, a.row(info, r))
	}
	return align(a.Out, rows)
}

func (a *app) showsProject(info trivet.KindInfo) bool {
	return a.allProjects && info.Scope == trivet.ScopeProject
}

// columns returns the columns of a kind's table, of the wide one where that is selected.
func (a *app) columns(info trivet.KindInfo) columns {
	if a.output == "wide" {
		var more columns
		switch info.Kind {
		case "Provision":
			more = a.placeColumns()
		case "Machine":
			more = a.installedColumns()
		}
		return wideColumns(info, more)
	}
	return columnsFor(info)
}

// row returns the cells of a record in the table.
func (a *app) row(info trivet.KindInfo, r trivet.Record) []string {
	cells := cellsOf(a.columns(info), r)
	if a.showsProject(info) {
		return append([]string{printable(r.Header().Project)}, cells...)
	}
	return cells
}

func cellsOf(c columns, r trivet.Record) []string {
	cells := append([]string{r.Header().Name}, c.row(r)...)
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	return cells
}

// align prints rows in columns, without spaces at the ends of lines.
func align(w io.Writer, rows [][]string) error {
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, cells := range rows {
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	tw.Flush()
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// showValue prints a value that is not a record as JSON, or as YAML if that is selected.
func (a *app) showValue(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if a.output == "yaml" {
		return showYAML(a.Out, []json.RawMessage{raw}, false)
	}
	return showJSON(a.Out, []json.RawMessage{raw}, true)
}

func showJSON(w io.Writer, raw []json.RawMessage, one bool) error {
	var v any = raw
	if one && len(raw) == 1 {
		v = raw[0]
	} else if raw == nil {
		v = []any{}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// showYAML prints records as YAML documents, which can be applied again.
func (a *app) showYAML(raw []json.RawMessage) error {
	return showYAML(a.Out, a.withoutManaged(raw), a.hidesProject())
}

func showYAML(w io.Writer, raw []json.RawMessage, hideProject bool) error {
	for i, r := range raw {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		text, err := yamlOf(r, hideProject)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// yamlOf converts JSON to YAML, in the same order, without the default project if that is to be hidden. A text with
// control characters is quoted: it is printed escaped.
func yamlOf(text json.RawMessage, hideProject bool) ([]byte, error) {
	return yamlWithout(text, func(f yaml.MapItem) bool {
		return hideProject && f.Key == "project" && f.Value == trivet.DefaultProject
	})
}

// yamlWithout is yamlOf without some properties of the object.
func yamlWithout(text json.RawMessage, hidden func(yaml.MapItem) bool) ([]byte, error) {
	var v any
	if err := yaml.UnmarshalWithOptions(text, &v, yaml.UseOrderedMap()); err != nil {
		return nil, err
	}
	if fields, ok := v.(yaml.MapSlice); ok {
		v = slices.DeleteFunc(fields, hidden)
	}
	return yaml.MarshalWithOptions(v, yaml.CustomMarshaler(func(s string) ([]byte, error) {
		if strings.ContainsFunc(s, func(r rune) bool { return isControl(r) && r != '\n' }) {
			return []byte(strconv.Quote(s)), nil
		}
		return yaml.Marshal(s)
	}))
}

// bytesText formats a size in binary units.
func bytesText(n int64) string {
	const unit = 1 << 10
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for ; v >= unit && i < 4; i++ {
		v /= unit
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}
