// Command bench measures a head, as the real program, beside the tools that its users have today: the same client, the same
// network, turn by turn, so that whatever else the computer does hits both. scripts/bench makes the network namespaces and
// runs it in the client's.
//
// Each subject is a file: idle.go, dhcp.go, http.go, tftp.go, image.go, workflows.go, scale.go. What they measured is rows
// (rows.go), which are printed, held against their bounds and written into docs/benchmarks.md (docs.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// subjects in the order of a run. Workflows come before what leaves the disk something to do afterwards.
var subjects = []subject{
	{"idle", "An idle head", (*bench).idle},
	{"workflows", "Workflows", (*bench).workflows},
	{"dhcp", "DHCP: stored reservations", (*bench).reservations},
	{"ranges", "DHCP: dynamic ranges", (*bench).ranges},
	{"http", "Boot files and images by HTTP", (*bench).http},
	{"tftp", "Boot files by TFTP", (*bench).tftp},
	{"image", "Image to disk", (*bench).image},
	{"scale", "Many agents", (*bench).scale},
}

type subject struct {
	name, title string
	measure     func(*bench) error
}

// bench is one run.
type bench struct {
	ctx    context.Context
	binary string // the trivet that is measured
	dir    string // scratch, on a real disk
	agents int    // of scale
	report *report
}

func main() {
	only := flag.String("only", "", "measure these subjects only, with commas between, and write no docs")
	docs := flag.String("docs", "docs/benchmarks.md", "where a whole run's results go")
	agents := flag.Int("agents", 2000, "connected agents of the subject scale")
	flag.Parse()
	debug.SetGCPercent(400) // what 500 agents leave behind in one process is less of a part of what is measured
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b := &bench{ctx: ctx, binary: os.Getenv("TRIVET"), agents: *agents, report: newReport()}
	if err := b.run(strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }), *docs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the subjects; none named means all but scale, and that the results are written down.
func (b *bench) run(only []string, docs string) (err error) {
	if b.binary == "" {
		return fmt.Errorf("TRIVET is not set: run make bench, or scripts/bench")
	}
	for _, name := range only {
		if !slices.ContainsFunc(subjects, func(s subject) bool { return s.name == name }) {
			return fmt.Errorf("-only %s: there is no such subject", name)
		}
	}
	if b.dir, err = os.MkdirTemp("/var/tmp", "trivet-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	b.report.describe(b)
	for _, s := range subjects {
		if len(only) > 0 && !slices.Contains(only, s.name) || len(only) == 0 && s.name == "scale" {
			continue
		}
		began := time.Now()
		b.report.begin(s.title)
		if err := s.measure(b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		b.report.end(os.Stdout, time.Since(began))
	}
	if len(only) == 0 {
		if err := b.report.writeDocs(docs); err != nil {
			return err
		}
	}
	return b.report.missed()
}
