package cluster

import (
	"fmt"
	"maps"
	"slices"
)

func (c change) String() string {
	return fmt.Sprintf("%d %s %s %s", c.Revision, c.Type, c.Kind, c.Name)
}

// id identifies a change.
func (c change) id() string { return fmt.Sprintf("%s %d", c, c.Sum) }

// checkFeeds checks that every watch reported every change once, in order, and that acknowledged writes are among
// them.
func (h *History) checkFeeds(r *report) {
	whole := map[string]int{}
	written := map[string]bool{}
	for i, c := range h.Whole {
		whole[c.id()] = i
		written[fmt.Sprint(c.Revision, c.Name, c.Value)] = true
		if i > 0 && c.Revision < h.Whole[i-1].Revision {
			r.add(ErrWatchReordered, "the last watch reported %s after %s", c, h.Whole[i-1])
		}
	}
	for _, o := range h.Ops {
		if o.Outcome == done && o.Revision > 0 && !written[fmt.Sprint(o.Revision, o.Key, o.Value)] {
			r.add(ErrWatchSkipped, "the last watch does not know %s, acknowledged at revision %d",
				describe(o), o.Revision)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.Feeds)) {
		h.checkFeed(r, name, h.Feeds[name], whole)
	}
}

func (h *History) checkFeed(r *report, name string, feed []change, whole map[string]int) {
	reported, last := map[int]bool{}, -1
	for _, c := range feed {
		i, known := whole[c.id()]
		switch {
		case c.Type == "reset" || c.Type == "error":
			r.add(ErrWatchSkipped, "%s could not be continued: %s %s", name, c.Type, c.Name)
			return
		case !known:
			r.add(ErrWatchSkipped, "the last watch does not know %s, which %s reported", c, name)
			continue
		case reported[i]:
			r.add(ErrWatchRepeated, "%s reported %s twice", name, c)
		case i < last:
			r.add(ErrWatchReordered, "%s reported %s after %s", name, c, h.Whole[last])
		}
		reported[i], last = true, max(last, i)
	}
	for i, c := range h.Whole {
		if !reported[i] {
			r.add(ErrWatchSkipped, "%s did not report %s", name, c)
		}
	}
}
