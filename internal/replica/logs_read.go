package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/trivet-project/trivet"
)

// Read fills buf, of at most LogChunkBytes, with a part's bytes from an offset and returns their number, which is 0
// at the end of what can be read yet. A zero byte is a gap that no reachable head can fill; a gap that may still be
// filled is an end.
func (v *LogView) Read(ctx context.Context, key trivet.LogKey, offset int64, buf []byte) (int, error) {
	n, err := v.logs.Store.Read(v.run.FullName(), key, offset, buf)
	if v.noteOwn(err) { // the others may have it
		n, err = 0, nil
	}
	if err != nil && !errors.Is(err, trivet.ErrNotFound) {
		return 0, err
	}
	clear(buf[n:])
	for _, name := range slices.Sorted(maps.Keys(v.heads)) {
		h := v.heads[name]
		has := min(max(0, h.parts[key]-offset), int64(len(buf)))
		if h.err != nil || bytes.IndexByte(buf[:has], 0) < 0 {
			continue
		}
		n = max(n, fillGaps(buf, v.readFrom(ctx, h, key, offset)))
	}
	return v.untilOpenGap(key, offset, buf[:n]), nil
}

// untilOpenGap returns the length of the text before its first gap that may still be filled.
func (v *LogView) untilOpenGap(key trivet.LogKey, offset int64, text []byte) int {
	from := len(text)
	if !v.latest && len(v.heads) > 0 {
		from = int(min(max(0, v.settled[key]-offset), int64(len(text))))
	}
	if gap := bytes.IndexByte(text[from:], 0); gap >= 0 {
		return from + gap
	}
	return len(text)
}

// fillGaps copies text to where buf has gaps, and returns where the text ends.
func fillGaps(buf, text []byte) int {
	text = text[:min(len(text), len(buf))]
	for i, b := range text {
		if buf[i] == 0 {
			buf[i] = b
		}
	}
	return len(text)
}

// readFrom returns what another head has at an offset.
func (v *LogView) readFrom(ctx context.Context, h *remoteLog, key trivet.LogKey, offset int64) []byte {
	ctx, cancel := context.WithTimeout(ctx, logReadTimeout)
	defer cancel()
	var resp logResponse
	req := logRequest{Workflow: v.run.FullName(), LogKey: key, Offset: offset}
	err := v.logs.Client.Call(ctx, h.url, readPath, req, &resp)
	if err == nil && len(resp.Text) > LogChunkBytes {
		err = fmt.Errorf("log of %s: %w: %d bytes at once", v.run.FullName(), trivet.ErrInvalid, len(resp.Text))
	}
	if h.setError(err); err != nil {
		return nil
	}
	return resp.Text
}
