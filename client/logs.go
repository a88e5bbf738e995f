package client

import (
	"bufio"
	"cmp"
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

// LogOptions select what to read of a workflow's logs.
type LogOptions struct {
	Project string // of the workflow; empty: the default one
	Action  string // empty: all
	// All includes what was repeated after a machine was reset: the logs of earlier epochs.
	All bool
	// Follow continues until the workflow has ended.
	Follow bool
	// Missing is called with the heads that are unreachable, whose part of the logs is left out, and
	// with none when all are reachable again. Optional.
	Missing func(heads []string)
}

// maxLogLine bounds one piece as JSON, in bytes.
const maxLogLine = 1 << 20

// Logs returns the logs of a workflow's actions, in order. After a broken connection it continues where it was;
// nothing is returned twice.
func (c *Client) Logs(ctx context.Context, workflow string, o LogOptions) iter.Seq2[trivet.LogPiece, error] {
	return func(yield func(trivet.LogPiece, error) bool) {
		if err := trivet.ValidateName(workflow); err != nil {
			yield(trivet.LogPiece{}, err)
			return
		}
		project := cmp.Or(o.Project, trivet.DefaultProject)
		l := &logReader{
			c: c, query: url.Values{}, path: Of[trivet.Workflow](c).In(project).kind.path(workflow) + "/logs",
			sent: map[trivet.LogKey]int64{}, missing: o.Missing, yield: yield,
		}
		if o.Action != "" {
			l.query.Set("action", o.Action)
		}
		if o.All {
			l.query.Set("all", "1")
		}
		if o.Follow {
			l.query.Set("follow", "1")
		}
		if err := l.run(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(trivet.LogPiece{}, fmt.Errorf("logs of %s: %w", workflow, err))
		}
	}
}

type logReader struct {
	c     *Client
	path  string
	query url.Values
	sent  map[trivet.LogKey]int64 // the offset up to which a part was sent
	yield func(trivet.LogPiece, error) bool

	missing func([]string)
}

func (l *logReader) run(ctx context.Context) error {
	begun := false
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		cl := call{method: http.MethodGet, path: l.path, query: l.query, timeout: -1, retry: begun}
		resp, _, err := l.c.send(ctx, cl)
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

// read sends the pieces of one connection. Only an end marker ends the log.
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
		if l.trim(&p) {
			continue
		}
		l.sent[p.LogKey] = p.Next
		if !l.yield(p, nil) {
			return errStopped
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// trim removes from a piece what was sent already, and reports whether nothing is left of it.
func (l *logReader) trim(p *trivet.LogPiece) bool {
	sent := l.sent[p.LogKey]
	if p.Next <= sent {
		return true
	}
	if p.Offset < sent && p.Next-p.Offset == int64(len(p.Text)) { // else it has holes: sent again rather than lost
		p.Text, p.Offset = p.Text[sent-p.Offset:], sent
	}
	return p.Text == ""
}
