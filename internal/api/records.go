package api

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// get returns one record as stored, with properties that this head does not know.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, _ *caller, info trivet.KindInfo) error {
	name, err := fullName(r)
	if err != nil {
		return err
	}
	read := h.Fleet.Store.Find
	if h.Fleet.Store.IsCold(info.Kind) {
		read = h.Fleet.Store.GetCold
	}
	raw, err := read(r.Context(), info.Kind, name)
	if err != nil && info.Kind == "Machine" {
		err = h.Fleet.RenamedTo("get", name, err)
	}
	if err != nil {
		return err
	}
	return respond(w, http.StatusOK, shown(info.Kind, raw.JSON()))
}

// list returns a page of records by name, of one project or all. Pages are read one after the other, so their records
// are of several revisions; the revision that all pages carry is the first one's, from where a watch misses nothing.
func (h *Handler) list(w http.ResponseWriter, r *http.Request, _ *caller, info trivet.KindInfo) error {
	q := r.URL.Query()
	project, err := projectOf(r)
	if err != nil {
		return err
	}
	sel, err := newSelector(q.Get("labels"), q.Get("fields"), info)
	if err != nil {
		return err
	}
	limit, err := pageSize(q.Get("limit"))
	if err != nil {
		return err
	}
	at, err := parsePosition(q.Get("continue"))
	if err != nil {
		return err
	}
	// an earlier page came from a head that is ahead of this one
	if _, err := h.catchUp(r.Context(), at.Revision); err != nil {
		return err
	}
	p := &page{kind: info.Kind, revision: at.Revision, after: at.After}
	if err := h.fill(r.Context(), p, project, sel, limit); err != nil {
		return err
	}
	return h.sendPage(w, r, p)
}

// fill adds the records after p.after that a selector matches, up to the bounds of a page.
func (h *Handler) fill(ctx context.Context, p *page, project string, sel selector, limit int) error {
	p.more = true
	for scanned, most := 0, h.scan; scanned < most; {
		records, more, revision, err := h.read(ctx, p, project, sel, limit)
		if err != nil {
			return err
		}
		p.revision = cmp.Or(p.revision, revision)
		for _, raw := range records {
			p.after = raw.Name()
			if raw.Cold() {
				most = maxColdScan
			}
			if rec := raw.Record(); rec == nil || !sel.matches(rec) {
				continue
			}
			if p.add(raw); len(p.records) == limit || p.bytes >= maxPageBytes {
				return nil
			}
		}
		if scanned += len(records); !more {
			p.more = false
			return nil
		}
	}
	return nil
}

// read returns the records after p.after that a selector may match, of which at most limit are read. more: there may be
// further ones.
func (h *Handler) read(ctx context.Context, p *page, project string, sel selector, limit int) (records []store.Raw,
	more bool, revision int64, err error) {
	if h.Fleet.Store.KeepsFormer(p.kind) {
		return h.Fleet.Store.ListAll(ctx, store.Query{Kind: p.kind, Project: project, Field: sel.field, After: p.after,
			Limit: limit, Bytes: maxPageBytes})
	}
	records, revision, err = h.candidates(ctx, p.kind, project, sel, p.after, limit)
	return records, len(records) == limit, revision, err
}

// candidates returns the records that a selector may match, after a name: by an index where it has a field of one, so
// that a network's addresses are found among those of all networks, and of a cold kind those under a prefix.
func (h *Handler) candidates(ctx context.Context, kind trivet.Kind, project string, sel selector, after string,
	limit int) ([]store.Raw, int64, error) {
	if h.Fleet.Store.IsCold(kind) {
		return h.Fleet.Store.ListCold(ctx, kind, h.Fleet.Store.UnderFields(kind, sel.field), after, limit)
	}
	for _, t := range sel.fields {
		if t.not || t.value == "" {
			continue
		}
		if records, revision, ok := h.Fleet.Store.ListByField(kind, project, t.key, t.value, after, limit); ok {
			return records, revision, nil
		}
	}
	records, revision := h.Fleet.Store.List(kind, project, after, limit)
	return records, revision, nil
}

func pageSize(text string) (int, error) {
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, &trivet.FieldError{Field: "limit", Problem: fmt.Sprintf("must be 1 to %d", maxPage)}
	}
	return n, nil
}

// position is where a list continues. The client keeps it, not the head.
type position struct {
	Revision int64  `json:"r"`
	After    string `json:"a"`
}

func (p position) String() string {
	text, _ := json.Marshal(p) // a number and a text: cannot fail
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePosition(text string) (p position, err error) {
	if text == "" {
		return p, nil
	}
	data, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil || p.Revision < 1 || trivet.ValidateFullName(trivet.Resolve("", p.After)) != nil {
		return p, &trivet.FieldError{Field: "continue", Problem: "is not the value of an earlier page"}
	}
	return p, nil
}
