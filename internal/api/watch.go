package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/auth"
)

const (
	// watchHeartbeat is the interval of bookmarks in a watch without changes.
	watchHeartbeat = 5 * time.Second
	// watchCutOff is the number of heartbeats after which a watch ends whose head has no leader: another head may
	// receive changes.
	watchCutOff = 2
	// statePage is how many records of the current state are read at once, and batchBytes what the changes use that are
	// sent at once where there is no space for more: a slow client makes the head hold them.
	statePage  = 100
	batchBytes = 64 << 10
)

// watchFilter selects the records of a watch.
type watchFilter struct {
	kinds   []trivet.Kind
	project string          // of the records of projects; empty: all
	names   map[string]bool // nil: all
	sel     selector
}

func (f *watchFilter) matches(r trivet.Record) bool {
	return r != nil && f.inProject(r.Header()) && (f.names == nil || f.names[r.Header().Name]) && f.sel.matches(r)
}

// inProject reports whether the watch includes the record's project. All watches include the records of the cluster.
func (f *watchFilter) inProject(m *trivet.Meta) bool {
	return f.project == "" || m.Project == "" || m.Project == f.project
}

// watch follows records. It is resumed from a revision, at this head or another; nothing is kept of it.
func (h *Handler) watch(w http.ResponseWriter, r *http.Request, c *caller) error {
	filter, from, err := parseWatch(r)
	if err != nil {
		return err
	}
	if err := filter.authorize(c.role); err != nil {
		return err
	}
	leave, err := h.enterWatch(r)
	if err != nil {
		return err
	}
	defer leave()
	if reached, err := h.catchUp(r.Context(), from); err != nil {
		return err
	} else if !reached {
		return fmt.Errorf("watch from revision %d: %w: the cluster is at %d", from, trivet.ErrCompacted,
			h.Fleet.Store.Revision())
	}
	f := &feed{h: h, c: c, w: w, r: r, filter: filter}
	f.watcher = h.Fleet.Store.Watch(max(from, 0), filter.kinds...)
	if from == 0 {
		f.open()
		if err := f.state(r.Context()); err != nil {
			return f.fail(err)
		}
	}
	return f.run(r.Context())
}

// authorize checks that the role may read the kinds. If none is given, it selects those that it may read.
func (f *watchFilter) authorize(role trivet.AccountRole) error {
	if f.kinds != nil {
		for _, kind := range f.kinds {
			if err := auth.Allow(role, auth.Read, kind); err != nil {
				return err
			}
		}
		return nil
	}
	for _, info := range trivet.Kinds {
		if auth.Allow(role, auth.Read, info.Kind) == nil {
			f.kinds = append(f.kinds, info.Kind)
		}
	}
	if f.kinds == nil { // for the store that would be all
		return fmt.Errorf("watch: %w to role %q", trivet.ErrForbidden, role)
	}
	return nil
}

func parseWatch(r *http.Request) (f *watchFilter, from int64, err error) {
	q := r.URL.Query()
	f = &watchFilter{project: q.Get("project")}
	if f.project != "" {
		if err := trivet.ValidateProject(f.project); err != nil {
			return nil, 0, err
		}
	}
	for name := range strings.SplitSeq(q.Get("kinds"), ",") {
		if name == "" {
			continue
		}
		info, err := trivet.LookupKind(name)
		if err != nil {
			return nil, 0, err
		}
		f.kinds = append(f.kinds, info.Kind)
	}
	for name := range strings.SplitSeq(q.Get("names"), ",") {
		if name == "" {
			continue
		}
		if f.names == nil {
			f.names = map[string]bool{}
		}
		f.names[name] = true
	}
	if f.sel.labels, err = parseSelector("labels", q.Get("labels")); err != nil {
		return nil, 0, err
	}
	text := q.Get("from")
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		text = id
	}
	if text != "" {
		if from, err = strconv.ParseInt(text, 10, 64); err != nil || from < 1 {
			return nil, 0, &trivet.FieldError{Field: "from", Problem: "must be a revision"}
		}
	}
	return f, from, nil
}

// projectOf returns the project of the records of a kind; empty: all, or the kind has none.
func (f *watchFilter) projectOf(kind trivet.Kind) string {
	if trivet.ScopeOf(kind) == trivet.ScopeProject {
		return f.project
	}
	return ""
}
