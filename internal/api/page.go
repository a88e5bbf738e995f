package api

import (
	"bufio"
	"encoding/json"
	"net/http"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/internal/store"
)

// Bounds of a page, in records, and in bytes, beyond which it has no further record: a slow client must receive one in
// time. maxScan and maxColdScan bound the records that are read for one page: where a selector matches few, a page may
// have few records, or none, and be continued. Records of a cold kind, and former ones, are read from the store.
const (
	defaultPage  = 500
	maxPage      = 1000
	maxPageBytes = 4 << 20
	maxScan      = 20_000
	maxColdScan  = 5000
)

// page is a page of a list, before it is sent. It refers to the records of the copy, and copies none of them.
type page struct {
	kind     trivet.Kind
	records  []store.Raw
	bytes    int
	cold     int // of bytes, those of records that no one else holds
	revision int64
	after    string // the name of the last record that was read
	more     bool   // there may be further ones
}

// add adds a record.
func (p *page) add(raw store.Raw) {
	p.records = append(p.records, raw)
	p.bytes += raw.Bytes()
	if raw.Cold() {
		p.cold += raw.Bytes()
	}
}

// sendBytes is what a page uses while it is sent, beside its records.
const sendBytes = 64 << 10

// sendPage sends a page record by record: a head may have many clients that receive one slowly.
func (h *Handler) sendPage(w http.ResponseWriter, r *http.Request, p *page) error {
	giveBack := h.unsent.take(r, sendBytes+p.cold)
	if giveBack == nil {
		return errUnsent("list")
	}
	defer giveBack()
	next := ""
	if p.more {
		next = position{p.revision, p.after}.String()
	}
	rest, err := json.Marshal(struct {
		Revision int64  `json:"revision"`
		Continue string `json:"continue,omitempty"`
	}{p.revision, next})
	if err != nil {
		return err
	}
	until := h.mustRead(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriterSize(w, sendBytes/2) // its first error is that of Flush
	out.WriteString(`{"items":[`)
	for i, raw := range p.records {
		if i > 0 {
			out.WriteByte(',')
		}
		if _, err := out.Write(shown(p.kind, raw.JSON())); err != nil {
			break
		}
	}
	out.WriteString("],")
	out.Write(rest[1:])
	out.WriteByte('\n')
	return readBy(until, out.Flush())
}
