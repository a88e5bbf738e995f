package bmc

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/trivet-project/trivet"
)

// EventLog is a [Client] whose BMC may have an event log: what it observed of the machine's hardware.
type EventLog interface {
	// Events reads the newest entries, at most limit. With an error it returns those that were read before; the error
	// is ErrNoEventLog where the BMC has none.
	Events(ctx context.Context, limit int) (Events, error)
}

// Events are entries of an event log, the oldest first.
type Events struct {
	Entries []Entry
	Now     time.Time // by the BMC's clock, when they were read; zero: it is not known
}

// Entry is an entry of an event log.
type Entry struct {
	Time time.Time // by the BMC's clock; zero: it was not set
	Text string    // one line without control characters, of at most maxEventText bytes
}

// ErrNoEventLog: the BMC has no event log.
var ErrNoEventLog = fmt.Errorf("%w: the BMC has no event log", trivet.ErrNotFound)

// maxEventText bounds the text of an entry, in bytes.
const maxEventText = 240

// eventText returns a BMC's text as one line of bounded length without control characters.
func eventText(text string) string {
	if len(text) > 4*maxEventText {
		text = text[:4*maxEventText]
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return ' '
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	return strings.ToValidUTF8(text[:min(len(text), maxEventText)], "")
}
