package machinelist

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// columns are those of a CSV file: what a cell sets. A column "label:KEY" sets a label.
var columns = map[string]func(r *row, cell string){
	"name":         func(r *row, cell string) { r.entry.name(cell) },
	"mac":          func(r *row, cell string) { r.macs = append(r.macs, words(cell)...) },
	"address":      func(r *row, cell string) { r.addresses = append(r.addresses, words(cell)...) },
	"arch":         func(r *row, cell string) { r.entry.arch(cell) },
	"rack":         func(r *row, cell string) { r.entry.Machine.Spec.Rack = cell },
	"platform":     func(r *row, cell string) { r.entry.Machine.Spec.Platform = cell },
	"bmc":          func(r *row, cell string) { r.bmc = cell },
	"bmc-protocol": func(r *row, cell string) { r.protocol = strings.ToLower(cell) },
	"bmc-secret":   func(r *row, cell string) { r.secret = cell },
	"disk":         func(r *row, cell string) { r.entry.Machine.Spec.Disk.Path = cell },
	"disk-serial":  func(r *row, cell string) { r.entry.Machine.Spec.Disk.Serial = cell },
	"disk-wwn":     func(r *row, cell string) { r.entry.Machine.Spec.Disk.WWN = cell },
}

const labelColumn = "label:"

// row is a line of a CSV file.
type row struct {
	entry                 *Entry
	macs, addresses       []string
	bmc, protocol, secret string
}

// words returns the words of a cell that has several.
func words(cell string) []string {
	return strings.FieldsFunc(cell, func(r rune) bool { return r == ' ' || r == ';' || r == '|' || r == ',' })
}

// readCSV reads a CSV file (RFC 4180) whose first line names the columns. Its separator is the comma, or the semicolon
// where the first line has no comma.
func readCSV(text []byte, o Options) (all []*Entry, err error) {
	r := csv.NewReader(bytes.NewReader(text))
	r.TrimLeadingSpace, r.Comment = true, '#'
	if head, _, _ := bytes.Cut(text, []byte("\n")); bytes.ContainsRune(head, ';') && !bytes.ContainsRune(head, ',') {
		r.Comma = ';'
	}
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	set, err := readHead(head)
	if err != nil {
		return nil, err
	}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if errors.Is(err, csv.ErrFieldCount) {
			return nil, fmt.Errorf("%w: %w, %d, where the first line names %d columns", trivet.ErrInvalid, err, len(cells),
				len(head))
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
		}
		line, _ := r.FieldPos(0)
		all = append(all, readRow(fmt.Sprint("line ", line), set, cells, o))
	}
}

// readHead returns what the cells of each column set.
func readHead(head []string) (set []func(*row, string), err error) {
	seen := map[string]bool{}
	for _, text := range head {
		name := strings.ToLower(strings.TrimSpace(text))
		if key, isLabel := strings.CutPrefix(strings.TrimSpace(text), labelColumn); isLabel {
			name = labelColumn + key
			set = append(set, func(r *row, cell string) { r.entry.label(key, cell) })
		} else if do := columns[name]; do != nil {
			set = append(set, do)
		} else {
			return nil, fmt.Errorf("%w: line 1: column %.60q is not known%s, or label:KEY", trivet.ErrInvalid, text,
				apitypes.Suggest(name, columns))
		}
		if seen[name] {
			return nil, fmt.Errorf("%w: line 1: there are two columns %s", trivet.ErrInvalid, name)
		}
		seen[name] = true
	}
	if !seen["name"] {
		return nil, fmt.Errorf("%w: line 1: there is no column name; the first line names the columns", trivet.ErrInvalid)
	}
	return set, nil
}

func readRow(place string, set []func(*row, string), cells []string, o Options) *Entry {
	r := &row{entry: newEntry(place), protocol: "ipmi", secret: o.Secret}
	for i, cell := range cells {
		if cell = strings.TrimSpace(cell); cell != "" {
			set[i](r, cell)
		}
	}
	if len(r.addresses) > len(r.macs) {
		r.entry.fail("it has %d addresses, and %d ports", len(r.addresses), len(r.macs))
	}
	for i, mac := range r.macs {
		address := ""
		if i < len(r.addresses) {
			address = r.addresses[i]
		}
		r.entry.port(mac, address)
	}
	if isURL := strings.Contains(r.bmc, "://"); r.bmc != "" && !isURL && !knownDriver(r.protocol) {
		r.entry.fail("bmc-protocol is %.40q; write ipmi or redfish", r.protocol)
	}
	r.entry.bmc(r.bmc, r.protocol, r.secret)
	return r.entry
}
