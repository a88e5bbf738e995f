package notify

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"mime/quotedprintable"
	"strings"
	"time"
	"unicode"
)

// text returns a mail about messages: headers and body. Each value of a header is one line of printable ASCII, whatever
// the messages have, and what machines and people wrote is in the body only, without control characters.
func (m *Mail) text(messages []Message, now time.Time) []byte {
	var b bytes.Buffer
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, headerText(value)) }
	header("Date", now.UTC().Format(time.RFC1123Z))
	header("From", m.spec.From)
	for i, to := range m.spec.To { // a line each, as a line is bounded
		b.WriteString([]string{"To: ", ",\r\n "}[min(i, 1)] + headerText(to))
	}
	b.WriteString("\r\n")
	header("Subject", subjectOf(messages))
	header("Message-ID", messageID(messages, m.spec.From))
	header("Auto-Submitted", "auto-generated")
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "quoted-printable")
	b.WriteString("\r\n")
	w := quotedprintable.NewWriter(&b)
	for i := range messages {
		_, _ = fmt.Fprint(w, messages[i].paragraph()) // a buffer accepts all
	}
	_ = w.Close()
	return b.Bytes()
}

// headerText returns a text as the value of a header.
func headerText(s string) string {
	const most = 900 // of 998 in a line
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s[:min(len(s), most)])
}

func subjectOf(messages []Message) string {
	first := fmt.Sprintf("%s: %s", messages[0].Data.Reason, messages[0].Subject)
	if len(messages) == 1 {
		return "[trivet] " + first
	}
	return fmt.Sprintf("[trivet] %d events: %s and others", len(messages), first)
}

// messageID returns the same ID whenever the same messages are sent, so that receivers can find repetitions.
func messageID(messages []Message, from string) string {
	h := sha256.New()
	for i := range messages {
		fmt.Fprintln(h, messages[i].ID)
	}
	_, domain, _ := strings.Cut(from, "@")
	return fmt.Sprintf("<%x@%s>", h.Sum(nil)[:16], domain)
}

// paragraph returns a message as people read it.
func (m *Message) paragraph() string {
	d := &m.Data
	lines := []string{fmt.Sprintf("%s  %s  %s", m.Time.Format(time.RFC3339), m.Subject, d.Reason), "  " + d.Message}
	if p := d.Provision; p != nil {
		lines = append(lines, fmt.Sprintf("  provision %s is %s", p.Name, p.State))
		for i := range p.Failed {
			lines = append(lines, "  failed on "+p.Failed[i].line())
		}
		if p.Machine != nil {
			lines = append(lines, "  now on "+p.Machine.line())
		}
	} else if d.Machine != nil {
		lines = append(lines, "  machine "+d.Machine.line())
	}
	if d.Hint != "" {
		lines = append(lines, "  more: "+d.Hint)
	}
	lines = append(lines, "  ID: "+m.ID, "", "")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\r\n")
}

func (m *Machine) line() string {
	text := m.Name + " (" + m.State + ")"
	if len(m.Addresses) > 0 {
		text += ", " + strings.Join(m.Addresses, " ")
	}
	if m.Rack != "" {
		text += ", rack " + m.Rack
	}
	if m.BMC != "" {
		text += ", BMC " + m.BMC
	}
	return text
}

// printable replaces what is not printed as one character of a line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || unicode.IsGraphic(r) && !unicode.Is(unicode.Zs, r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}
