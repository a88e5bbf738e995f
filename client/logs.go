package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/trivet-project/trivet"
)

// LogOptions choose what to read of a workflow's logs.
type LogOptions struct {
	Action string // empty: all
	// Follow goes on until the workflow has ended.
	Follow bool
	// Missing is told the heads that cannot be asked for their part of the logs: what they alone have is left out. It is told
	// none when all can be asked again. nil: nobody is told.
	Missing func(heads []string)
}

// maxLogLine bounds one piece as JSON, in bytes.
const maxLogLine = 1 << 20

// Logs reads what the actions of a workflow wrote, in order. A connection that breaks is made anew, and what was told
// already is left out.
func (c *Client) Logs(ctx context.Context, workflow string, o LogOptions) iter.Seq2[trivet.LogPiece, error] {
	return func(yield func(trivet.LogPiece, error) bool) {
		if err := trivet.ValidateName(workflow); err != nil {
			yield(trivet.LogPiece{}, err)
			return
		}
		l := &logReader{c: c, path: "/v1/workflows/" + url.PathEscape(workflow) + "/logs", query: url.Values{}, told: map[logPart]int64{},
			missing: o.Missing, yield: yield}
		if o.Action != "" {
			l.query.Set("action", o.Action)
		}
		if o.Follow {
			l.query.Set("follow", "1")
		}
		if err := l.run(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(trivet.LogPiece{}, fmt.Errorf("logs of %s: %w", workflow, err))
		}
	}
}

type logPart struct {
	action  string
	attempt int
}

type logReader struct {
	c     *Client
	path  string
	query url.Values
	told  map[logPart]int64 // up to which offset
	yield func(trivet.LogPiece, error) bool

	missing func([]string)
}

func (l *logReader) run(ctx context.Context) error {
	begun := false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		resp, _, err := l.c.send(ctx, call{method: http.MethodGet, path: l.path, query: l.query, timeout: -1, patient: begun})
		if err != nil {
			return err
		}
		begun = true
		err = l.read(resp.Body)
		resp.Body.Close()
		if err == nil || errors.Is(err, errStopped) || ctx.Err() != nil {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// read tells the pieces of one connection. Only an end that the head has written is the end.
func (l *logReader) read(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		var p trivet.LogPiece
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return err
		}
		if p.Action == "" {
			return nil // the end
		}
		if p.Action == trivet.LogMark && l.missing != nil {
			l.missing(p.Missing)
		}
		if l.leaveOut(&p) {
			continue
		}
		l.told[logPart{p.Action, p.Attempt}] = p.Next
		if !l.yield(p, nil) {
			return errStopped
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// leaveOut takes what was told already off a piece, and says whether nothing is left of it.
func (l *logReader) leaveOut(p *trivet.LogPiece) bool {
	told := l.told[logPart{p.Action, p.Attempt}]
	if p.Next <= told {
		return true
	}
	if p.Offset < told && p.Next-p.Offset == int64(len(p.Text)) { // else it has holes: better told twice than not at all
		p.Text, p.Offset = p.Text[told-p.Offset:], told
	}
	return p.Text == ""
}
