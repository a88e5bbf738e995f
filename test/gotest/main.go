// Gotest runs go test several times and prints one table of how long each package took.
//
//	gotest [-record FILE] -- [VAR=VALUE ...] ARG... [-- [VAR=VALUE ...] ARG...]...
//
// Each group of arguments is one run of go test. All groups run, also after a failure. Meanwhile it prints each
// package as it ends, each test that took long, and the output of those that failed. With -record it adds the outcome
// to a page.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// long is how long a test must take to get a line.
const long = 5 * time.Second

const module = "github.com/trivet-project/trivet"

func main() {
	page := flag.String("record", "", "page to which the outcome is added")
	flag.Parse()
	r := &run{began: time.Now(), version: version()}
	for _, group := range groups(flag.Args()) {
		if err := r.group(group); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			r.failed = true
		}
	}
	r.print(os.Stdout)
	if *page != "" {
		if err := r.record(*page); err != nil {
			fmt.Fprintln(os.Stderr, "gotest:", err)
			r.failed = true
		}
	}
	if r.failed {
		os.Exit(1)
	}
}

// groups splits arguments at "--".
func groups(args []string) (out [][]string) {
	var group []string
	for _, a := range append(args, "--") {
		switch {
		case a != "--":
			group = append(group, a)
		case len(group) > 0:
			out, group = append(out, group), nil
		}
	}
	return out
}

// run is all groups of one command.
type run struct {
	began    time.Time
	version  string // under test
	packages []pkg
	failed   bool
}

// pkg is the outcome of one package in one group.
type pkg struct {
	name, outcome string
	took          time.Duration
	tests         int
	failed        []string
}

// event is one line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

func (e event) took() time.Duration { return time.Duration(e.Elapsed * float64(time.Second)) }

// group runs go test once.
func (r *run) group(args []string) error {
	env := os.Environ()
	for len(args) > 0 && !strings.HasPrefix(args[0], "-") && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	fmt.Println("go test", strings.Join(shown(args), " "))
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Env, cmd.Stderr = env, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	err = errors.Join(r.read(out), cmd.Wait())
	fmt.Println(used(cmd.ProcessState, time.Since(began)))
	return err
}

// used says how busy the computer was during a group: where it waited for most of the time, more tests may run at once.
func used(p *os.ProcessState, took time.Duration) string {
	cores := (p.UserTime() + p.SystemTime()).Seconds() / took.Seconds()
	return fmt.Sprintf("took %s, in which it used %.1f of %d processors", took.Round(time.Second), cores, runtime.NumCPU())
}

// shown is a list of arguments without the packages' names, where there are many.
func shown(args []string) []string {
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, module) })
	if i < 0 {
		return args
	}
	return append(slices.Clone(args[:i]), fmt.Sprintf("(%d packages)", len(args)-i))
}

// read reads what go test -json prints.
func (r *run) read(from io.Reader) error {
	outputs, packages := map[string]*strings.Builder{}, map[string]*pkg{}
	lines := bufio.NewScanner(from)
	for lines.Buffer(nil, 16<<20); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Println(lines.Text())
			continue
		}
		name := cmp.Or(e.Package, e.ImportPath)
		id := name + " " + e.Test
		if outputs[id] == nil {
			outputs[id] = &strings.Builder{}
		}
		if packages[name] == nil {
			packages[name] = &pkg{name: short(name)}
		}
		switch e.Action {
		case "output", "build-output":
			outputs[id].WriteString(e.Output)
		case "pass", "fail", "skip", "build-fail":
			if e.Action == "fail" && e.Test == "" { // also of tests that had not ended, such as one that hung
				for _, test := range slices.Sorted(maps.Keys(outputs)) {
					if strings.HasPrefix(test, name+" ") && test != id {
						fmt.Print(outputs[test])
					}
				}
			}
			r.ended(e, packages[name], outputs[id].String())
			delete(outputs, id)
		}
	}
	return lines.Err()
}

// ended records the end of a test or of a package.
func (r *run) ended(e event, p *pkg, output string) {
	failed := e.Action == "fail" || e.Action == "build-fail"
	if failed {
		fmt.Print(output)
	}
	switch {
	case e.Test != "":
		p.tests++
		if failed {
			p.failed = append(p.failed, e.Test)
		}
		if e.took() >= long && !failed && !strings.Contains(e.Test, "/") {
			fmt.Printf("    %s %s %s\n", p.name, e.Test, e.took().Round(100*time.Millisecond))
		}
	case e.Action == "skip": // the package has no tests
	case e.Action == "build-fail": // the package fails, too
	default:
		p.outcome, p.took = e.Action, e.took()
		fmt.Printf("%-5s %s %s\n", p.outcome, p.name, p.took.Round(10*time.Millisecond))
		r.packages = append(r.packages, *p)
		r.failed = r.failed || failed
	}
}

func short(name string) string {
	return cmp.Or(strings.TrimPrefix(strings.TrimPrefix(name, module), "/"), "(root)")
}

// print prints the table, the slowest package first.
func (r *run) print(to io.Writer) {
	slices.SortStableFunc(r.packages, func(a, b pkg) int { return cmp.Compare(b.took, a.took) })
	fmt.Fprintf(to, "\n%8s  %5s  %-7s %s\n", "TIME", "TESTS", "OUTCOME", "PACKAGE")
	for _, p := range r.packages {
		fmt.Fprintf(to, "%8s  %5d  %-7s %s\n", p.took.Round(100*time.Millisecond), p.tests, p.outcome, p.name)
	}
	fmt.Fprintf(to, "%8s  in all\n", time.Since(r.began).Round(time.Second))
}
