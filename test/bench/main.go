// Command bench measures a head, as the real program, beside the tools that its users have today: the same client,
// the same network, alternately, so that the other load of the computer affects both. scripts/bench makes the network
// namespaces and runs it in the client's.
//
// Each subject is a file: idle.go, dhcp.go, http.go, tftp.go, image.go, workflows.go, gap.go, storm.go, scale.go,
// faults.go, capacity.go with backup.go.
// Subjects with agents have heads in a site (site.go), machines in a fleet (fleet.go), and their agents in a process
// of their own (agentpool.go). What was measured is rows (rows.go), which are printed, compared with their bounds and
// written into docs/benchmarks.md (docs.go).
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// subjects in the order of a run: those of make bench, then those of make scale. Writing images comes last, as the disk
// is busy for a while afterwards.
var subjects = []subject{
	{"idle", "An idle head", (*bench).idle, false},
	{"workflows", "Workflows", (*bench).workflows, false},
	{"gap", "Write gap", (*bench).gap, false},
	{"storm", "Reconnect storm", (*bench).storm, false},
	{"dhcp", "DHCP: stored reservations", (*bench).reservations, false},
	{"ranges", "DHCP: dynamic ranges", (*bench).ranges, false},
	{"http", "Boot files and images by HTTP", (*bench).http, false},
	{"tftp", "Boot files by TFTP", (*bench).tftp, false},
	{"faults", "Faulty machines, a rack, a platform and an image", (*bench).faults, false},
	{"image", "Image to disk", (*bench).image, false},
	{"one", "Many agents on one head", (*bench).one, true},
	{"many", "Many agents on several heads, one of which is killed", (*bench).many, true},
	{"faulty", "1,000 provisions among faults, while heads are killed", (*bench).manyFaults, true},
	{"capacity", capacityTitle, (*bench).capacity, true},
}

type subject struct {
	name, title string
	measure     func(*bench) error
	scale       bool
}

// bench is one run.
type bench struct {
	ctx    context.Context
	binary string // the trivet that is measured
	dir    string // scratch, on a real disk
	agents int    // of many
	heads  int    // of many

	machines int // of capacity
	runs     int // of each of its machines
	filled   string
	report   *report
}

// The sizes of a published run of make scale.
const (
	manyAgents   = 10_000
	manyHeads    = 3
	finishedRuns = 10
)

// isWhole reports whether make scale measures what is published, and not less.
func (b *bench) isWhole() bool {
	return b.agents >= manyAgents && b.heads >= manyHeads && b.machines >= siteSize && b.runs >= finishedRuns
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	only := flag.String("only", "", "measure these subjects only, with commas between, and write no docs")
	scale := flag.Bool("scale", false, "measure what make scale does, instead of make bench")
	docs := flag.String("docs", "docs/benchmarks.md", "where a whole run's results go")
	page := flag.String("page", "", "where the results of the subject capacity go; make scale: docs/scale.md, unless one "+
		"of the following is smaller than by default")
	agents := flag.Int("agents", manyAgents, "connected agents of the subject many")
	heads := flag.Int("heads", manyHeads, "heads of the subject many, 3 to 7")
	machines := flag.Int("machines", siteSize, "machines of the subject capacity")
	runs := flag.Int("runs", finishedRuns, "ended runs of each of them")
	filled := flag.String("filled", "", "data directory of a head that a former run has filled; it is changed, and kept")
	pool := flag.Bool("agent-pool", false, "run the agents of another bench")
	flag.Parse()
	if *pool {
		return agentPoolMain()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{ctx: ctx, binary: os.Getenv("TRIVET"), agents: *agents, heads: *heads, machines: *machines, runs: *runs,
		filled: *filled, report: newReport()}
	if b.binary == "" {
		return fmt.Errorf("TRIVET is not set: run make bench, or scripts/bench")
	}
	if b.heads < 3 || b.heads > 7 || b.agents < b.heads || b.machines < 1 || b.runs < 1 || b.runs > maxFillRuns {
		return fmt.Errorf("-heads must be 3 to 7, -runs 1 to %d, -agents and -machines at least as many", maxFillRuns)
	}
	chosen, err := choose(*only, *scale)
	if err != nil {
		return err
	}
	if err := b.run(chosen); err != nil {
		return err
	}
	if *only == "" && *scale && b.isWhole() {
		*page = cmp.Or(*page, "docs/scale.md")
	}
	if *page != "" {
		if err := b.report.writePage(*page); err != nil {
			return err
		}
	}
	if *only == "" && (!*scale || b.isWhole()) {
		if err := b.report.writeDocs(*docs, *scale); err != nil {
			return err
		}
	}
	return b.report.missed()
}

// choose returns the subjects that are named, or all of make bench or make scale.
func choose(only string, scale bool) (chosen []subject, err error) {
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, name := range names {
		if !slices.ContainsFunc(subjects, func(s subject) bool { return s.name == name }) {
			return nil, fmt.Errorf("-only %s: there is no such subject", name)
		}
	}
	for _, s := range subjects {
		if slices.Contains(names, s.name) || len(names) == 0 && s.scale == scale {
			chosen = append(chosen, s)
		}
	}
	return chosen, nil
}

// run measures the subjects.
func (b *bench) run(chosen []subject) (err error) {
	if b.dir, err = os.MkdirTemp("/var/tmp", "trivet-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.report.describe(b)
	for _, s := range chosen {
		began := time.Now()
		b.report.begin(s.title)
		if err := s.measure(b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.report.end(os.Stdout, time.Since(began))
	}
	return nil
}
