package cli

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/apitypes"
)

// columns are the columns of a kind's table after the name.
type columns struct {
	titles []string
	row    func(trivet.Record) []string
}

// kindColumns are the columns of the kinds that have their own. The others get those of defaultColumns.
var kindColumns = map[trivet.Kind]columns{
	"Machine": columnsOf(func(m *trivet.Machine) []string {
		return []string{string(m.Status.State), m.Status.Provision, m.Spec.Rack, firstMAC(m), m.Status.Reason}
	}, "STATE", "PROVISION", "RACK", "MAC", "REASON"),
	"Template": columnsOf(func(t *trivet.Template) []string {
		return []string{strconv.Itoa(len(t.Spec.Actions)), t.Spec.Description}
	}, "ACTIONS", "DESCRIPTION"),
	"Provision": columnsOf(func(p *trivet.Provision) []string {
		return []string{string(p.Status.State), machineOrMembers(p), p.Spec.Template, p.Status.Workflow,
			joined(pauseText(p.Status.Paused), p.Status.Reason)}
	}, "STATE", "MACHINE", "TEMPLATE", "WORKFLOW", "REASON"),
	"Workflow": columnsOf(func(w *trivet.Workflow) []string {
		return []string{runState(w), w.Spec.Machine, currentStep(w), stepsDone(w),
			etaCell(w), failureText(w.Status.Failure)}
	}, "STATE", "MACHINE", "STEP", "DONE", "ETA", "FAILURE"),
	"Image": columnsOf(func(i *trivet.Image) []string {
		return []string{i.Spec.Format, i.Spec.Compression, bytesText(i.Spec.Blob.Bytes),
			shortDigest(i.Spec.Blob.Digest)}
	}, "FORMAT", "COMPRESSION", "SIZE", "DIGEST"),
	"Platform": columnsOf(func(p *trivet.Platform) []string {
		initrd, _ := p.Initrd()
		return []string{p.Spec.Arch, p.Spec.Version, bytesText(p.Spec.Kernel.Bytes + initrd.Bytes)}
	}, "ARCH", "VERSION", "SIZE"),
	"Network": columnsOf(func(n *trivet.Network) []string {
		return []string{n.Spec.CIDR.String(), n.Spec.DHCPOrDefault(), n.Spec.UnknownOrDefault()}
	}, "CIDR", "DHCP", "UNKNOWN"),
	"Address": columnsOf(func(a *trivet.Address) []string {
		return []string{a.Spec.Network, a.Spec.MAC, a.Spec.Machine}
	}, "NETWORK", "MAC", "MACHINE"),
	"MAC":  columnsOf(func(m *trivet.MAC) []string { return []string{m.Spec.Machine} }, "MACHINE"),
	"Site": columnsOf(func(s *trivet.Site) []string { return []string{s.Spec.Platform} }, "PLATFORM"),
	"Head": columnsOf(func(h *trivet.Head) []string {
		return []string{h.Spec.RoleOrDefault(), string(h.Status.State), h.Status.Version,
			strings.Join(h.Status.API, " ")}
	}, "ROLE", "STATE", "VERSION", "API"),
	"Upgrade": columnsOf(func(u *trivet.Upgrade) []string {
		return []string{u.Spec.Version, string(u.Status.Phase), u.Status.Head, u.Status.Reason + u.Status.Cause}
	}, "VERSION", "PHASE", "HEAD", "REASON"),
	"Key": columnsOf(func(k *trivet.Key) []string {
		return []string{k.Status.Active, string(k.Status.Phase), k.Status.Reason}
	}, "ACTIVE", "PHASE", "REASON"),
	"Secret":  columnsOf(func(s *trivet.Secret) []string { return []string{strconv.Itoa(len(s.Spec.Data))} }, "KEYS"),
	"Token":   columnsOf(func(t *trivet.Token) []string { return []string{t.Spec.Account} }, "ACCOUNT"),
	"Account": columnsOf(func(a *trivet.Account) []string { return []string{string(a.Spec.Role)} }, "ROLE"),
	"Notifier": columnsOf(func(n *trivet.Notifier) []string {
		st := &n.Status
		return []string{string(st.State), strconv.Itoa(len(st.Pending)), strconv.FormatInt(st.Delivered, 10),
			strconv.FormatInt(st.Dropped, 10), st.Head, st.Reason}
	}, "STATE", "PENDING", "DELIVERED", "DROPPED", "HEAD", "REASON"),
	"BackupSchedule": columnsOf(func(b *trivet.BackupSchedule) []string {
		to, last := b.Spec.Directory, ""
		if b.Spec.S3 != nil {
			to = b.Spec.S3.Location
		}
		if b.Status.Last != nil {
			last = b.Status.Last.Made.UTC().Format(time.DateTime)
		}
		return []string{string(b.Status.State), b.Spec.Every.String(), to, last, b.Status.Head, b.Status.Reason}
	}, "STATE", "EVERY", "TO", "LAST", "HEAD", "REASON"),
	"Event": columnsOf(func(e *trivet.Event) []string {
		return []string{e.Spec.Time.UTC().Format("2006-01-02 15:04:05.000"), e.Spec.Subject, e.Spec.Reason, e.Spec.Message}
	}, "TIME", "SUBJECT", "REASON", "MESSAGE"),
}

func columnsOf[P trivet.Record](row func(P) []string, titles ...string) columns {
	return columns{titles, func(r trivet.Record) []string { return row(r.(P)) }}
}

// columnsFor returns the columns of a kind.
func columnsFor(info trivet.KindInfo) columns {
	if c, ok := kindColumns[info.Kind]; ok {
		return c
	}
	return defaultColumns(info)
}

// defaultColumns are the labels, the time of creation and, where the kind has them, status.state and status.reason.
func defaultColumns(info trivet.KindInfo) columns {
	var c columns
	var fields [][]int
	if status, ok := apitypes.Properties(reflect.TypeOf(info.New()).Elem())["status"]; ok {
		known := apitypes.Properties(status.Type)
		for _, name := range []string{"state", "reason"} {
			if f, ok := known[name]; ok {
				c.titles = append(c.titles, strings.ToUpper(name))
				fields = append(fields, append(slices.Clone(status.Index), f.Index...))
			}
		}
	}
	c.titles = append(c.titles, "LABELS", "CREATED")
	c.row = func(r trivet.Record) []string {
		var cells []string
		for _, index := range fields {
			cells = append(cells, fmt.Sprint(reflect.ValueOf(r).Elem().FieldByIndex(index).Interface()))
		}
		return append(cells, labelsText(r.Header().Labels), r.Header().Created.UTC().Format(time.RFC3339))
	}
	return c
}

// joined returns the texts that are not empty, with a semicolon between them.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "; ")
}

func labelsText(labels map[string]string) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, key+"="+labels[key])
	}
	return strings.Join(all, ",")
}

func firstMAC(m *trivet.Machine) string {
	if len(m.Spec.NICs) == 0 {
		return ""
	}
	return m.Spec.NICs[0].MAC
}

// runState is the state of a run, also that it is frozen.
func runState(w *trivet.Workflow) string {
	if w.Status.Frozen {
		return string(w.Status.State) + ", frozen"
	}
	return string(w.Status.State)
}

func currentStep(w *trivet.Workflow) string {
	if s := w.Status.Current(); s != nil {
		return s.Name
	}
	return ""
}

func stepsDone(w *trivet.Workflow) string {
	done := 0
	for _, s := range w.Status.Steps {
		if s.State == trivet.StepDone || s.State == trivet.StepSkipped {
			done++
		}
	}
	return fmt.Sprintf("%d/%d", done, len(w.Status.Steps))
}

func failureText(f *trivet.Failure) string {
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
