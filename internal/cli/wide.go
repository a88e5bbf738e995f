package cli

import (
	"slices"
	"time"

	"github.com/trivet-project/trivet"
)

// wideColumns are the columns of a kind, those that are shown in the wide table only, the labels and the time of
// creation.
func wideColumns(info trivet.KindInfo, more columns) columns {
	own := columnsFor(info)
	if _, ok := kindColumns[info.Kind]; !ok {
		return own // which ends with these
	}
	return columns{
		titles: slices.Concat(own.titles, more.titles, []string{"LABELS", "CREATED"}),
		row: func(r trivet.Record) []string {
			cells := own.row(r)
			if more.row != nil {
				cells = append(cells, more.row(r)...)
			}
			return append(cells, labelsText(r.Header().Labels), r.Header().Created.UTC().Format(time.RFC3339))
		},
	}
}

// powerCell is the power of a machine, as far as it is known.
func powerCell(m *trivet.Machine) string {
	switch {
	case m.Status.PowerError == nil:
		return m.Status.Power
	case m.Status.Power == "":
		return "unknown"
	}
	return "unknown (was " + m.Status.Power + ")"
}

// powerErrorText is since when, and why, the power of a machine is not known; empty: its BMC reports it.
func powerErrorText(m *trivet.Machine) string {
	e := m.Status.PowerError
	if e == nil {
		return ""
	}
	return "since " + e.Since.UTC().Format(time.DateTime) + ": " + e.Cause
}

func bmcText(m *trivet.Machine) string {
	if m.Spec.BMC == nil {
		return ""
	}
	return m.Spec.BMC.Protocol + " " + m.Spec.BMC.Address
}

func modelText(m *trivet.Machine) string {
	if m.Status.Inventory == nil {
		return ""
	}
	return m.Status.Inventory.Product
}
