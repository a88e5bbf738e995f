// Package machinelist reads lists of machines: CSV files, and the exports of MAAS, Tinkerbell and Metal3. It is pure.
//
// Of each machine it takes what a Machine record has: its name, ports, BMC, disk, architecture, place and labels. What
// has no place there is a note, and so is what a person still has to do. A machine that the other tool uses, or may
// use, is cordoned, so that no provision overwrites it.
package machinelist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/trivet-project/trivet"
)

// Options are what a list does not say.
type Options struct {
	// Secret is that of BMCs for which the list names none.
	Secret string
	// Addresses: fixed addresses of exports are imported. Those of CSV files always are.
	Addresses bool
	// Available: machines of which an export does not say whether they are in use are not cordoned.
	Available bool
}

// Entry is a machine of a list.
type Entry struct {
	Machine *trivet.Machine
	// Where the list has it, such as "line 3".
	Where string
	// Notes are what was left out, and what is left to do.
	Notes []string
	// Err says why it cannot be imported.
	Err error
}

// Read returns the machines of a list in the order of the list: of an export with these documents, or, where there are
// none, of a CSV file.
func Read(text []byte, docs []any, o Options) ([]*Entry, error) {
	var all []*Entry
	var err error
	if docs == nil {
		all, err = readCSV(bytes.TrimPrefix(text, byteOrderMark), o)
	} else {
		all, err = readExport(docs, o)
	}
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: the list has no machines", trivet.ErrInvalid)
	}
	for _, e := range all {
		e.finish()
	}
	markTwice(all)
	return all, nil
}

// byteOrderMark is how some spreadsheets begin a file.
var byteOrderMark = []byte("\xef\xbb\xbf")

// IsCSV reports whether a list is a CSV file, and not an export in JSON or YAML.
func IsCSV(text []byte) bool {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, byteOrderMark))
	return !bytes.HasPrefix(text, []byte("[")) && !bytes.HasPrefix(text, []byte("{")) &&
		!bytes.HasPrefix(text, []byte("-")) && !yamlKey.Match(text)
}

// yamlKey is a line of YAML with which an export begins.
var yamlKey = regexp.MustCompile(`(?m)^(apiVersion|kind|items):`)

// readExport returns the machines of documents of MAAS, Tinkerbell or Metal3.
func readExport(docs []any, o Options) ([]*Entry, error) {
	if len(docs) == 1 {
		if list, ok := docs[0].([]any); ok {
			return readMAAS(list, o)
		}
	}
	return readKubernetes(docs, o)
}

func newEntry(place string) *Entry {
	return &Entry{Where: place, Machine: &trivet.Machine{Meta: trivet.Meta{Kind: "Machine"}}}
}

func (e *Entry) note(format string, args ...any) {
	e.Notes = append(e.Notes, fmt.Sprintf(format, args...))
}

func (e *Entry) fail(format string, args ...any) {
	if e.Err == nil {
		e.Err = fmt.Errorf("%w: "+format, append([]any{trivet.ErrInvalid}, args...)...)
	}
}

// finish validates the machine.
func (e *Entry) finish() {
	if e.Err == nil {
		e.Err = errors.Join(trivet.ValidateWritten(e.Machine), trivet.ValidateLabels(e.Machine.Labels))
	}
	if e.Err == nil && len(e.Machine.Spec.NICs) == 0 {
		e.note("it has no port with a MAC: Trivet cannot recognise it when it boots")
	}
}

// markTwice marks machines whose name, port or BMC another one before them has.
func markTwice(all []*Entry) {
	names, ports, bmcs := map[string]string{}, map[string]string{}, map[string]*Entry{}
	for _, e := range all {
		if e.Err != nil {
			continue
		}
		if other, taken := names[e.Machine.Name]; taken {
			e.fail("%s has the name %s, too", other, e.Machine.Name)
			continue
		}
		names[e.Machine.Name] = e.Where
		for _, nic := range e.Machine.Spec.NICs {
			if other, taken := ports[nic.MAC]; taken {
				e.fail("%s has the MAC %s, too", other, nic.MAC)
			}
			ports[nic.MAC] = e.Where
		}
		e.markSameBMC(bmcs)
	}
}

// markSameBMC marks a machine whose BMC another one has, of the first ones before it with each key of a BMC.
func (e *Entry) markSameBMC(before map[string]*Entry) {
	b := e.Machine.Spec.BMC
	if b == nil {
		return
	}
	own, same := b.Keys()
	for _, key := range same {
		if o := before[key]; o != nil {
			e.fail("%s (%s) has the BMC %s, too; write that of each machine", o.Where, o.Machine.Name, b.Address)
		}
	}
	for _, key := range own {
		if before[key] == nil {
			before[key] = e
		}
	}
}

// name sets the name of the machine: in lower case, with - for what a name must not have.
func (e *Entry) name(text string) {
	name := strings.Trim(noName.ReplaceAllString(strings.ToLower(text), "-"), "-.")
	if name != text && text != "" {
		e.note("it is named %.80q there", text)
	}
	e.Machine.Name = name
}

// noName is what the name of a record must not have.
var noName = regexp.MustCompile(`[^a-z0-9.-]+`)

// port adds a port, unless the machine has it.
func (e *Entry) port(mac string, address string) {
	if mac == "" {
		return
	}
	canonical, err := trivet.CanonicalMAC(strings.TrimSpace(mac))
	if err != nil {
		e.fail("%s", err)
		return
	}
	nic := trivet.NIC{MAC: canonical}
	if address != "" {
		a, err := netip.ParseAddr(address)
		if err != nil || !a.Is4() {
			e.note("address %.60q of %s was left out: ports have IPv4 addresses", address, canonical)
		} else {
			nic.Address = a
		}
	}
	if !slices.ContainsFunc(e.Machine.Spec.NICs, func(n trivet.NIC) bool { return n.MAC == canonical }) {
		e.Machine.Spec.NICs = append(e.Machine.Spec.NICs, nic)
	}
}

// arch sets the architecture; "amd64/generic" is that of MAAS.
func (e *Entry) arch(text string) {
	text, _, _ = strings.Cut(strings.ToLower(text), "/")
	switch text {
	case "":
	case "x86_64", "amd64", "x64":
		e.Machine.Spec.Arch = "amd64"
	case "aarch64", "arm64":
		e.Machine.Spec.Arch = "arm64"
	default:
		e.note("architecture %.40q was left out: it is found when the machine boots", text)
	}
}

// label sets a label, unless it is none.
func (e *Entry) label(key, value string) {
	if trivet.ValidateLabels(map[string]string{key: value}) != nil {
		e.note("label %.80q was left out", key+"="+value)
		return
	}
	if e.Machine.Labels == nil {
		e.Machine.Labels = map[string]string{}
	}
	e.Machine.Labels[key] = value
}

// cordon excludes the machine from placement, for a reason.
func (e *Entry) cordon(why string) {
	e.Machine.Spec.Cordoned = true
	e.note("it is cordoned, as %s: no provision uses it until spec.cordoned is removed", why)
}

// decode sets fields from a value of JSON.
func decode(value, to any) error {
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", trivet.ErrInvalid, err)
	}
	return nil
}
