package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trivet-project/trivet"
	"github.com/trivet-project/trivet/client"
	"github.com/trivet-project/trivet/internal/testhead"
)

// siteSize is the number of machines for which the design states bounds. From enough machines on, what they use is
// extrapolated to that number.
const siteSize, enough = 100_000, 10_000

const capacityTitle = "Records of many machines in one head"

// capacity measures a head with the records of many machines beside the bounds of the design.
func (b *bench) capacity() error {
	s, err := b.startSite("capacity", oneHost)
	if err != nil {
		return err
	}
	defer s.close()
	m := s.heads[0]
	c := &capacity{site: s, report: b.report, n: b.machines}
	if c.http, err = c.newHTTP(); err != nil {
		return err
	}
	m.stop()
	if c.empty, err = c.restart(); err != nil {
		return err
	}
	m.stop()
	done, err := c.fill()
	if err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	c.what(b.runs, done)
	full, err := c.restart()
	if err != nil {
		return err
	}
	c.sizes(full)
	c.report.add(row{what: "choice of a machine by a label that all have", unit: "ms", ours: ms(done.chosen),
		bound: under(1)})
	c.report.add(row{what: fmt.Sprintf("oldest of %d waiting provisions, for a machine", fillPending), unit: "ms",
		ours: ms(done.oldest), bound: under(1000)})
	if err := errors.Join(c.reads(), c.changes(), c.claims(), c.freed()); err != nil {
		return err
	}
	return errors.Join(c.connect(), c.backups())
}

// fill fills the head's store, or takes one that another run has filled.
func (c *capacity) fill() (done filled, err error) {
	b, m := c.b, c.heads[0]
	if b.filled == "" {
		return b.fill(m.dir, b.machines, b.runs)
	}
	m.dir, c.fresh = b.filled, int(time.Now().Unix()%1_000_000)
	admin, err := readAdmin(m.dir)
	if err != nil {
		return done, err
	}
	c.admin.Trust, c.admin.Token = admin.Trust, admin.Token
	c.client.Close()
	if c.client, err = c.login(0); err != nil {
		return done, err
	}
	if c.http, err = c.newHTTP(); err != nil {
		return done, err
	}
	return b.refill(m.dir, b.runs)
}

// capacity is a head, and what is measured of it.
type capacity struct {
	*site
	report *report
	http   *http.Client
	n      int
	fresh  int // makes names new in a store that was measured before
	empty  held
}

// held is what a head uses that has started, and after what time it was ready.
type held struct{ anonymous, files, heap, used, file, keys, ready float64 }

// restart starts the head, which does not run.
func (c *capacity) restart() (h held, err error) {
	began := time.Now()
	if err := c.start(c.heads[0]); err != nil {
		return h, err
	}
	h.ready = time.Since(began).Seconds()
	time.Sleep(idleTime)
	h.anonymous, h.files, err = c.memory()
	for name, to := range map[string]*float64{"go_memstats_heap_inuse_bytes": &h.heap,
		"trivet_store_used_bytes": &h.used, "trivet_store_file_bytes": &h.file,
		"etcd_debugging_mvcc_keys_total": &h.keys} {
		var errMetric error
		*to, errMetric = c.metric(name)
		err = errors.Join(err, errMetric)
	}
	return h, err
}

// memory returns the head's resident memory that is its own, and pages of files: the kernel takes these back when it
// needs memory.
func (c *capacity) memory() (anonymous, files float64, err error) {
	own, errOwn := c.heads[0].Anonymous()
	all, errAll := c.heads[0].Resident()
	return float64(own), float64(all - own), errors.Join(errOwn, errAll)
}

func (c *capacity) newHTTP() (*http.Client, error) {
	trust, err := client.TLSConfig(c.admin.Trust)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true},
		Timeout: timeout}, err
}

// get returns the body of a response, and how long it took.
func (c *capacity) get(path string) (body []byte, took time.Duration, err error) {
	req, err := http.NewRequestWithContext(c.b.ctx, http.MethodGet, testhead.APIURL(c.heads[0].host)+path, nil)
	if err != nil {
		return nil, 0, err
	}
	req.Header.Set("Authorization", "Bearer "+c.admin.Token)
	began := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, time.Since(began), err
}

// metric returns the value of a metric without labels.
func (c *capacity) metric(name string) (float64, error) {
	text, _, err := c.get("/metrics")
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the head has no metric %s", name)
}

func (c *capacity) what(runs int, done filled) {
	c.report.add(row{what: "machines with an inventory", ours: float64(c.n)})
	c.report.add(row{what: "ended runs of each", ours: float64(runs)})
	c.report.add(row{what: "events of each", ours: float64(runs * done.events)})
	if done.wrote > 0 {
		c.report.add(row{what: "machines written, with all that", unit: "/s", ours: float64(c.n) / done.wrote.Seconds()})
	}
}

// sizes reports what grows with the number of machines.
func (c *capacity) sizes(full held) {
	grows := func(what, unit string, empty, now float64, b bound) {
		if c.n >= siteSize {
			c.report.add(row{what: what, unit: unit, ours: now, bound: b})
			return
		}
		c.report.add(row{what: what, unit: unit, ours: now})
		if c.n >= enough {
			c.report.add(row{what: fmt.Sprintf("%s, extrapolated to %d machines", what, siteSize), unit: unit,
				ours: empty + (now-empty)*siteSize/float64(c.n), bound: b})
		}
	}
	const mb = 1e6
	grows("bytes in use in the store", "MB", c.empty.used/mb, full.used/mb, under(4000))
	grows("file of the store", "MB", c.empty.file/mb, full.file/mb, bound{})
	grows("memory of the head, without agents", "MB", c.empty.anonymous/mb, full.anonymous/mb, under(4000))
	grows("heap of it that is in use", "MB", c.empty.heap/mb, full.heap/mb, bound{})
	grows("pages of files besides, which the kernel takes back", "MB", c.empty.files/mb, full.files/mb, bound{})
	grows("ready after a start", "s", c.empty.ready, full.ready, under(30))
	c.report.add(row{what: "bytes in use in the store, for a machine", unit: "KB",
		ours: (full.used - c.empty.used) / 1e3 / float64(c.n)})
	c.report.add(row{what: "keys in the store, for a machine", ours: (full.keys - c.empty.keys) / float64(c.n)})
	if c.n >= enough {
		c.report.add(row{what: "memory for a machine", unit: "KB",
			ours: (full.anonymous - c.empty.anonymous) / 1e3 / float64(c.n)})
	}
}

// times is how often a request is measured.
const times = 20

// reads measures the requests of operators, by the median.
func (c *capacity) reads() error {
	var one, page, why, events []float64
	pageBytes, eventBytes := 0, 0
	for i := range times {
		name := filledName(i * c.n / times)
		body, took, err := c.get("/v1/machines/" + name)
		if err != nil {
			return err
		}
		one = append(one, ms(took))
		m := new(trivet.Machine)
		if err := json.Unmarshal(body, m); err != nil {
			return err
		}
		body, took, err = c.get("/v1/machines")
		if err != nil {
			return err
		}
		page, pageBytes = append(page, ms(took)), len(body)
		_, ofRun, err := c.get("/v1/projects/default/workflows/" + m.Status.Workflow)
		if err != nil {
			return err
		}
		body, ofEvents, err := c.get("/v1/events?fields=spec.subject=machine/" + name + ",spec.subjectUID=" + m.UID)
		if err != nil {
			return err
		}
		events, eventBytes = append(events, ms(ofEvents)), len(body)
		why = append(why, one[i]+ms(ofRun+ofEvents))
	}
	r := c.report
	r.add(row{what: "get of a machine", unit: "ms", ours: median(one), bound: under(50)})
	r.add(row{what: "first page of a list of machines", unit: "ms", ours: median(page), bound: under(200)})
	r.add(row{what: "bytes of it", unit: "KB", ours: float64(pageBytes) / 1e3})
	r.add(row{what: "requests of `why`", unit: "ms", ours: median(why), bound: under(50)})
	r.add(row{what: "events of a machine, of these", unit: "ms", ours: median(events)})
	r.add(row{what: "bytes of them", unit: "KB", ours: float64(eventBytes) / 1e3})
	return nil
}

// walBytes is the metric of what the store has written to its log.
const walBytes = "etcd_disk_wal_write_bytes_total"

// changes measures transactions that change one machine.
func (c *capacity) changes() error {
	before, err := c.metric(walBytes)
	if err != nil {
		return err
	}
	var took []float64
	for i := range times {
		began := time.Now()
		if _, err := client.Of[trivet.Machine](c.client).Patch(c.b.ctx, filledName(i*c.n/times),
			fmt.Appendf(nil, `{"labels":{"changed":"%d"}}`, i), 0); err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
	}
	after, err := c.metric(walBytes)
	c.report.add(row{what: "change of a machine's label", unit: "ms", ours: median(took)})
	c.report.add(row{what: "bytes that the store writes for it, with the audit log", unit: "KB",
		ours: (after - before) / 1e3 / times})
	return err
}

// claims measures provisions by a label that all machines have.
func (c *capacity) claims() error {
	var took []float64
	for i := range times {
		began, name := time.Now(), fmt.Sprintf("claim%d-%d", c.fresh, i)
		provisions := client.Of[trivet.Provision](c.client)
		if _, err := provisions.Create(c.b.ctx, &trivet.Provision{Meta: trivet.Meta{Project: "default", Name: name},
			Spec: trivet.ProvisionSpec{Template: "filled", Selector: map[string]string{wholeSite: "yes"}}}); err != nil {
			return err
		}
		if err := c.await("a provision has its machine", func() bool {
			p, err := provisions.Get(c.b.ctx, name)
			return err == nil && p.Status.Machine != ""
		}); err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
	}
	c.report.add(row{what: "provision by that label, until it has its machine (read every 20 ms)", unit: "ms",
		ours: median(took)})
	return nil
}

// freed measures what a machine costs that many provisions wait for: one of them gets it. That is repeated, as the heap
// is collected meanwhile now and then.
func (c *capacity) freed() error {
	var all []float64
	for i := range freedTimes {
		used, err := c.freeOne(filledName(c.n - 1 - (c.fresh+i)%(c.n/2)))
		if err != nil {
			return err
		}
		all = append(all, used)
	}
	what := fmt.Sprintf("processor time of the head in %s when a machine is freed for %d provisions", idleTime, fillPending)
	c.report.add(row{what: what, unit: "ms", ours: median(all), bound: under(1000)})
	c.report.add(row{what: "the most of these", unit: "ms", ours: slices.Max(all)})
	return nil
}

const freedTimes = 5

// freeOne returns the processor time in ms that the head uses from before a machine is freed.
func (c *capacity) freeOne(name string) (used float64, err error) {
	before, err := c.heads[0].CPU()
	if err != nil {
		return 0, err
	}
	if _, err := client.Of[trivet.Machine](c.client).Patch(c.b.ctx, name,
		fmt.Appendf(nil, `{"labels":{"pool":%q}}`, pendingFor["pool"]), 0); err != nil {
		return 0, err
	}
	if err := c.await("a waiting provision has the machine", func() bool {
		m, err := client.Of[trivet.Machine](c.client).Get(c.b.ctx, name)
		return err == nil && m.Status.Provision != ""
	}); err != nil {
		return 0, err
	}
	time.Sleep(idleTime) // all that follows from it
	after, err := c.heads[0].CPU()
	return ms(after - before), err
}

// connect connects agents of more machines to the head, and measures its memory with them.
func (c *capacity) connect() error {
	f, err := c.writeMachines(c.n+c.fresh, c.b.agents) // their MACs follow those of the others
	if err != nil {
		return err
	}
	defer f.close()
	if err := f.boot(); err != nil {
		return err
	}
	time.Sleep(idleTime)
	anonymous, files, err := c.memory()
	if err != nil {
		return err
	}
	heap, err := c.metric("go_memstats_heap_inuse_bytes")
	bound := bound{}
	if c.n >= siteSize && c.b.agents >= manyAgents/manyHeads {
		bound = under(4000)
	}
	c.report.add(row{what: fmt.Sprintf("memory of the head with %d agents connected, of machines more", c.b.agents),
		unit: "MB", ours: anonymous / 1e6, bound: bound})
	c.report.add(row{what: "heap of it that is in use", unit: "MB", ours: heap / 1e6})
	c.report.add(row{what: "pages of files besides", unit: "MB", ours: files / 1e6})
	return err
}
