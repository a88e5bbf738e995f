package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// describe notes the computer and the programs.
func (r *report) describe(b *bench) {
	add := func(what, command string) {
		out, _ := exec.Command("sh", "-c", command).CombinedOutput()
		r.about = append(r.about, "- "+what+": "+strings.TrimSpace(string(out)))
	}
	r.about = append(r.about, "- Date: "+time.Now().UTC().Format("2006-01-02 15:04 MST"))
	add("Computer", `lscpu | sed -n 's/^Model name: *//p' | head -1; nproc | sed 's/$/ cores/'; `+
		`free -m | awk '/^Mem/{print $2 " MB"}'`)
	add("Kernel", "uname -sr")
	add("Load average before the run", "cut -d' ' -f1-3 /proc/loadavg")
	add("Trivet", b.binary+" --version")
	r.about = append(r.about, "- Go: "+runtime.Version())
	add("Debian packages", "dpkg-query -W -f='${Package} ${Version}\\n' kea-dhcp4-server kea-admin nginx-light wrk "+
		"dnsmasq-base zstd coreutils")
	for i, line := range r.about {
		r.about[i] = strings.ReplaceAll(line, "\n", ", ")
	}
}

const (
	benchBegin = "<!-- results: written by make bench -->\n"
	scaleBegin = "<!-- results: written by make scale -->\n"
	resultsEnd = "<!-- end of results -->\n"
)

// writeDocs puts the results into a page, in the place that it marks for them.
func (r *report) writeDocs(path string, scale bool) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	begin := benchBegin
	if scale {
		begin = scaleBegin
	}
	before, rest, begins := strings.Cut(string(page), begin)
	_, after, ends := strings.Cut(rest, resultsEnd)
	if !begins || !ends {
		return fmt.Errorf("%s does not mark where results go", path)
	}
	return os.WriteFile(path, []byte(before+begin+r.markdown()+resultsEnd+after), 0o644)
}

// pageText begins the page of the subject capacity.
const pageText = `# Scale

Written by ` + "`make scale`" + `, whose results with connected agents on three heads are in [benchmarks](benchmarks.md). A bound
is that of the design for 100,000 machines with 10 ended runs each; one that is not met is marked. All lines are of one run.

Method: a head is started, started again, measured empty, and stopped. The records are written into its store by its own
code: for each machine its inventory of a server with four disks and four ports, its MAC, and ended runs of five actions
with all their events; and 1,000 provisions that wait. One run is made step by step, by the transitions that netboot and
agents cause; the others are copies of it for other machines, and become former runs but the last one. Then what was
replaced is dropped from the store, as heads do within an hour, its file is made as small as what it holds, and the head is
started again, as by an operator.

Memory is that of the process without pages of files. The store's file is mapped: its pages that were read count as
resident, too, and the kernel takes them back when it needs memory. They have a line of their own. Agents are those of
machines more, and all of them are connected to this one head: each of three heads has 3,334 of 10,000.

What "extrapolated" says is computed from the empty head and the measured one, as if each machine cost the same; all other
lines are measured. Of fewer than 10,000 machines nothing is extrapolated. Times of requests are the medians of 20, over
one connection; decisions of the head are the mean of 1,000. The client and the agents run on the same computer.

Bounds of the design that other tests hold:

| Bound | Test |
|---|---|
| from 70 % of the quota an event; deletes always possible; self-healing | ` + "`TestDecide`, `TestFullStoreRecovers`" + ` (internal/maintenance), ` +
	"`TestFullStoreAcceptsDeletions`" + ` (internal/store) |
| 30 KB that the store writes for a small run | ` + "`TestStoreBytesOfARun`" + ` (internal/fleet) |
| checkpoints: one transaction for each head and 10 s | ` + "`TestOneCheckpointForAllRuns`, `TestLargestCheckpointIsSaved`" +
	` (internal/controller/deadline) |
| 64 power cycles in parallel on each head | ` + "`TestSlowBMCsHoldUpNoOthers`" + ` (internal/controller/power) |
| work for a change does not depend on the number of machines | ` + "`TestScans`" + ` |

`

// writePage writes the page of the subject capacity, where it was measured.
func (r *report) writePage(path string) error {
	for _, s := range r.sections {
		if s.title == capacityTitle {
			text := pageText + strings.Join(r.about, "\n") + "\n\n## " + s.title + "\n\n" + s.table()
			return os.WriteFile(path, []byte(text), 0o644)
		}
	}
	return fmt.Errorf("-page %s: the subject capacity was not measured", path)
}

func (r *report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\n%s\n", strings.Join(r.about, "\n"))
	for _, s := range r.sections {
		if s.title == capacityTitle { // it has a page of its own
			continue
		}
		fmt.Fprintf(&out, "\n### %s\n\n%s", s.title, s.table())
		for _, n := range s.notes {
			fmt.Fprintf(&out, "\n%s\n", n)
		}
		if len(s.commands) > 0 {
			fmt.Fprintf(&out, "\n```\n%s\n```\n", strings.Join(s.commands, "\n"))
		}
	}
	out.WriteString("\n")
	return out.String()
}
