package bmc

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/trivet-project/trivet"
)

// logOwner is a system or a manager.
type logOwner struct {
	LogServices link `json:"LogServices"`
	Links       struct {
		ManagedBy []link `json:"ManagedBy"`
	} `json:"Links"`
}

type logService struct {
	Type     string `json:"LogEntryType"`
	DateTime string `json:"DateTime"` // its clock
	Entries  link   `json:"Entries"`
}

// hasEvents reports whether the log, whose name has a rank, has events. Its type is optional, and OEM of HPE's IML.
func (s logService) hasEvents(rank int) bool {
	switch s.Type {
	case "SEL", "Event", "Multiple":
		return true
	case "":
		return rank < rankOther
	}
	return rank == rankHardware
}

type logPage struct {
	Members logEntries `json:"Members"`
	Count   int        `json:"Members@odata.count"` // of all entries
}

type logEntry struct {
	ID       string `json:"@odata.id"`
	Created  string `json:"Created"`
	Severity string `json:"Severity"`
	Message  string `json:"Message"`
	Code     string `json:"MessageId"`
}

func (e logEntry) entry() Entry {
	text := cmp.Or(e.Message, e.Code, "an entry without a message")
	if e.Severity != "" {
		text = e.Severity + ": " + text
	}
	return Entry{Time: redfishTime(e.Created), Text: eventText(text)}
}

// redfishTime parses a time; zero: it is none, or one before BMCs existed, by a clock that was not set.
func redfishTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1990 || t.Year() > 9999 {
		return time.Time{}
	}
	return t.UTC()
}

// maxLogEntries bounds the entries that a page lists.
const maxLogEntries = 10_000

// logEntries are the entries of a page. A page of empty ones would need many times its size in memory.
type logEntries []logEntry

// UnmarshalJSON implements [json.Unmarshaler].
func (l *logEntries) UnmarshalJSON(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return fmt.Errorf("%w: the entries of the event log are no list", trivet.ErrInvalid)
	}
	for d.More() {
		var e logEntry
		if len(*l) == maxLogEntries {
			return fmt.Errorf("%w: the event log lists over %d entries at once", trivet.ErrTooLarge, maxLogEntries)
		}
		if err := d.Decode(&e); err != nil {
			return err
		}
		*l = append(*l, e)
	}
	return nil
}
