package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

const (
	// steadyTime and steadyRate, in writes/s, are of the load under which no election may begin. steadyWriters is how
	// many writes wait at once at most.
	steadyTime    = time.Minute
	steadyRate    = 1000
	steadyWriters = 64
)

// steady is writes at a constant rate.
type steady struct {
	site              *site
	pace              *rate.Limiter
	succeeded, failed atomic.Int64
}

// steady writes by all heads, and counts the elections meanwhile: a leader that is only busy must not be taken for one
// that has ended.
func (b *bench) steady(s *site) error {
	for i := range steadyWriters {
		if err := s.template(steadyRecord(i), "nothing"); err != nil {
			return err
		}
	}
	before, err := s.term()
	if err != nil {
		return err
	}
	endedBefore, err := s.successions()
	if err != nil {
		return err
	}
	load := &steady{site: s, pace: rate.NewLimiter(steadyRate, steadyWriters)}
	end := time.Now().Add(steadyTime)
	var writers errgroup.Group
	for i := range steadyWriters {
		writers.Go(func() error { return load.write(i, end) })
	}
	if err := writers.Wait(); err != nil {
		return err
	}
	after, err := s.term()
	if err != nil {
		return err
	}
	endedAfter, err := s.successions()
	if err != nil {
		return err
	}
	b.report.add(row{what: fmt.Sprintf("%v of at most %d writes/s: acknowledged", steadyTime, steadyRate), unit: "/s",
		ours: float64(load.succeeded.Load()) / steadyTime.Seconds()})
	b.report.add(row{what: "writes that failed", ours: float64(load.failed.Load()), bound: none})
	b.report.add(row{what: "elections meanwhile", ours: after - before, bound: none})
	b.report.add(row{what: "heads that took the leader for ended meanwhile", ours: endedAfter - endedBefore,
		bound: none})
	return nil
}

func steadyRecord(i int) string { return fmt.Sprint("steady", i) }

// write writes a record again and again.
func (l *steady) write(i int, end time.Time) error {
	c, err := l.site.login(i % len(l.site.heads))
	if err != nil {
		return err
	}
	defer c.Close()
	records, ctx := client.Of[trivet.Template](c), l.site.b.ctx
	for n := 0; time.Now().Before(end); n++ {
		if err := l.pace.Wait(ctx); err != nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"labels":{%q:"%d"}}`, countLabel, n)
		if _, err := records.Patch(ctx, steadyRecord(i), patch, 0); err != nil {
			l.failed.Add(1)
		} else {
			l.succeeded.Add(1)
		}
	}
	return nil
}

// term returns the term of the store. The difference of two is the number of elections between them.
func (s *site) term() (term float64, err error) {
	for _, m := range s.heads {
		value, err := s.metric(m, "trivet_store_term")
		if err != nil {
			return 0, err
		}
		term = max(term, value)
	}
	return term, nil
}

// successions returns how often all heads together have taken a leader for ended.
func (s *site) successions() (n float64, err error) {
	for _, m := range s.heads {
		value, err := s.metric(m, "trivet_store_successions_total")
		if err != nil {
			return 0, err
		}
		n += value
	}
	return n, nil
}

// metric returns the value of a metric of a head, which has no labels.
func (s *site) metric(m *member, name string) (float64, error) {
	req, err := http.NewRequestWithContext(s.b.ctx, http.MethodGet, testhead.APIURL(m.host)+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+s.admin.Token)
	resp, err := testhead.Unverified.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s: no metric %s: %s", m.name, name, resp.Status)
}
