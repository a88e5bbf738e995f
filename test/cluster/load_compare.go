package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// compareTimeout is how long heads may take to have the same records, after all is over. Some records still change.
const compareTimeout = 20 * time.Second

// compare notes which records the heads do not have alike at the end.
func (l *load) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	var differ []string
	err := testhead.Eventually(ctx, func() (err error) {
		if differ, err = l.differing(ctx); err == nil && len(differ) > 0 {
			err = errors.New("the heads differ")
		}
		return err
	})
	if len(differ) == 0 {
		return err
	}
	l.history.note(func(h *History) { h.Differ = differ })
	return nil
}

// differing returns the records that a head does not have as the first one has them.
func (l *load) differing(ctx context.Context) (out []string, err error) {
	first, err := l.recordsOf(ctx, l.site.heads[0])
	if err != nil {
		return nil, err
	}
	for _, h := range l.site.heads[1:] {
		other, err := l.recordsOf(ctx, h)
		if err != nil {
			return nil, err
		}
		names := maps.Clone(first)
		maps.Copy(names, other)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			if first[name] != other[name] { // 0: it has none
				out = append(out, fmt.Sprintf("%s is at revision %d on %s and at %d on %s", name, other[name], h.port,
					first[name], l.site.heads[0].port))
			}
		}
	}
	return out, nil
}

// recordsOf returns the revisions of all records that a head has.
func (l *load) recordsOf(ctx context.Context, h *head) (map[string]int64, error) {
	c, err := l.site.client(-1, h)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all := map[string]int64{}
	for _, kind := range append(slices.Clone(followed), "Secret") {
		info, err := trivet.LookupKind(string(kind))
		if err != nil {
			return nil, err
		}
		list, _, err := c.Kind(info).List(ctx, client.ListOptions{Page: 1000})
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			all[string(kind)+" "+r.Header().Name] = r.Header().Revision
		}
	}
	return all, nil
}
