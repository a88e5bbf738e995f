package trivet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// KindInfo is what the generic paths know of a noun.
type KindInfo struct {
	Kind   Kind
	Plural string // in URLs and on the command line
	Short  string // accepted instead of Plural, may be empty
	// New gives an empty record.
	New func() Record
	// Columns are the table's; the first is the name.
	Columns []Column
	// ReadOnly kinds are written by Trivet only.
	ReadOnly bool
}

// Column is one column of a kind's table.
type Column struct {
	Title string
	Value func(Record) string
}

// Kinds are all nouns.
var Kinds = []KindInfo{
	kind("machines", "m", func(m *Machine) []string {
		return []string{string(m.Status.State), m.Status.Provision, m.Spec.Rack, firstMAC(m), m.Status.Reason}
	}, "STATE", "PROVISION", "RACK", "MAC", "REASON"),
	kind("templates", "t", func(t *Template) []string {
		return []string{strconv.Itoa(len(t.Spec.Actions)), t.Spec.Description}
	}, "ACTIONS", "DESCRIPTION"),
	kind("provisions", "p", func(v *Provision) []string {
		return []string{string(v.Status.State), v.Status.Machine, v.Spec.Template, v.Status.Workflow, v.Status.Reason}
	}, "STATE", "MACHINE", "TEMPLATE", "WORKFLOW", "REASON"),
	readOnly(kind("workflows", "w", func(w *Workflow) []string {
		return []string{string(w.Status.State), w.Spec.Machine, currentStep(w), stepsDone(w), failure(w.Status.Failure)}
	}, "STATE", "MACHINE", "STEP", "DONE", "FAILURE")),
	kind("images", "i", func(i *Image) []string {
		return []string{i.Spec.Format, i.Spec.Compression, bytesText(i.Spec.Blob.Bytes), shortDigest(i.Spec.Blob.Digest)}
	}, "FORMAT", "COMPRESSION", "SIZE", "DIGEST"),
	kind("platforms", "", func(l *Platform) []string {
		return []string{l.Spec.Arch, l.Spec.Version, bytesText(l.Spec.Kernel.Bytes + l.Spec.Initrd.Bytes)}
	}, "ARCH", "VERSION", "SIZE"),
	kind("networks", "n", func(n *Network) []string {
		return []string{n.Spec.CIDR.String(), orDefault(n.Spec.DHCP, "server"), orDefault(n.Spec.Unknown, "enrol")}
	}, "CIDR", "DHCP", "UNKNOWN"),
	readOnly(kind("addresses", "", func(a *Address) []string {
		return []string{a.Spec.Network, a.Spec.MAC, a.Spec.Machine}
	}, "NETWORK", "MAC", "MACHINE")),
	readOnly(kind("macs", "", func(m *MAC) []string { return []string{m.Spec.Machine} }, "MACHINE")),
	kind("sites", "", func(s *Site) []string { return []string{s.Spec.Platform} }, "PLATFORM"),
	readOnly(kind("heads", "", func(h *Head) []string {
		return []string{orDefault(h.Spec.Role, RoleVoter), string(h.Status.State), h.Status.Version, strings.Join(h.Status.API, " ")}
	}, "ROLE", "STATE", "VERSION", "API")),
	kind("secrets", "", func(s *Secret) []string { return []string{strconv.Itoa(len(s.Spec.Data))} }, "KEYS"),
	readOnly(kind("tokens", "", func(t *Token) []string { return []string{t.Spec.Account} }, "ACCOUNT")),
	kind("accounts", "", func(a *Account) []string { return []string{a.Spec.Role} }, "ROLE"),
	readOnly(kind("events", "", func(e *Event) []string {
		return []string{e.Spec.Time.UTC().Format("15:04:05.000"), e.Spec.Subject, e.Spec.Reason, e.Spec.Message}
	}, "TIME", "SUBJECT", "REASON", "MESSAGE")),
}

// LookupKind finds a kind by its plural, short name or kind, in any case.
func LookupKind(name string) (KindInfo, error) {
	want := strings.ToLower(name)
	i := slices.IndexFunc(Kinds, func(k KindInfo) bool {
		return want != "" && (k.Plural == want || k.Short == want || strings.ToLower(string(k.Kind)) == want)
	})
	if i < 0 {
		var names []string
		for _, k := range Kinds {
			names = append(names, k.Plural)
		}
		return KindInfo{}, fmt.Errorf("%w: no kind %q; there are %s", ErrInvalid, name, strings.Join(names, ", "))
	}
	return Kinds[i], nil
}

// KindOf gives the kind of a Go type of record.
func KindOf(r Record) Kind {
	name := fmt.Sprintf("%T", r)
	return Kind(name[strings.LastIndexByte(name, '.')+1:])
}

func kind[T any, P interface {
	*T
	Record
}](plural, short string, row func(P) []string, titles ...string) KindInfo {
	info := KindInfo{Kind: KindOf(P(new(T))), Plural: plural, Short: short, New: func() Record { return P(new(T)) }}
	info.Columns = []Column{{Title: "NAME", Value: func(r Record) string { return r.Header().Name }}}
	for i, title := range titles {
		info.Columns = append(info.Columns, Column{Title: title, Value: func(r Record) string { return row(r.(P))[i] }})
	}
	return info
}

func readOnly(k KindInfo) KindInfo {
	k.ReadOnly = true
	return k
}

func firstMAC(m *Machine) string {
	if len(m.Spec.NICs) == 0 {
		return ""
	}
	return m.Spec.NICs[0].MAC
}

func currentStep(w *Workflow) string {
	if s := w.Status.Current(); s != nil {
		return s.Name
	}
	return ""
}

func stepsDone(w *Workflow) string {
	done := 0
	for _, s := range w.Status.Steps {
		if s.State == StepDone || s.State == StepSkipped {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, len(w.Status.Steps))
}

func failure(f *Failure) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%s (%s): %s", f.Step, f.Type, f.Cause)
}

func orDefault(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func shortDigest(d string) string {
	const n = len("sha256:") + 12
	return d[:min(n, len(d))]
}

func bytesText(n int64) string {
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if n < 10<<10 {
			return fmt.Sprintf("%d %s", n, unit)
		}
		n >>= 10
	}
	return fmt.Sprintf("%d TiB", n)
}
