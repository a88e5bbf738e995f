package action

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trivet-project/trivet"
)

// memoryErrors are the errors that the hardware has counted since the boot: memory controllers (EDAC), and the
// processors (machine check exceptions).
type memoryErrors struct {
	controllers            int
	corrected, uncorrected int64
	modules                map[string][2]int64 // corrected and uncorrected, of each memory module
	exceptions             int64
}

// readMemoryErrors reads them below the root of the machine; nil has none.
func readMemoryErrors(root fs.FS) memoryErrors {
	e := memoryErrors{modules: map[string][2]int64{}}
	if root == nil {
		return e
	}
	controllers, _ := fs.Glob(root, "sys/devices/system/edac/mc/mc[0-9]*")
	for _, dir := range controllers {
		e.controllers++
		e.corrected += count(root, dir+"/ce_count")
		e.uncorrected += count(root, dir+"/ue_count")
		modules, _ := fs.Glob(root, dir+"/dimm[0-9]*")
		ranks, _ := fs.Glob(root, dir+"/rank[0-9]*")
		for _, module := range append(modules, ranks...) {
			name := cmp.Or(line(root, module+"/dimm_label"), path.Base(dir)+"/"+path.Base(module))
			n := e.modules[name]
			e.modules[name] = [2]int64{n[0] + count(root, module+"/dimm_ce_count"), n[1] + count(root, module+"/dimm_ue_count")}
		}
	}
	e.exceptions = machineChecks(root)
	return e
}

// machineChecks returns how many machine check exceptions all processors had.
func machineChecks(root fs.FS) (n int64) {
	text, err := fs.ReadFile(root, "proc/interrupts")
	if err != nil {
		return 0
	}
	for l := range strings.Lines(string(text)) {
		if fields := strings.Fields(l); len(fields) > 0 && fields[0] == "MCE:" {
			for _, field := range fields[1:] {
				each, _ := strconv.ParseInt(field, 10, 64) // the rest are words
				n += each
			}
		}
	}
	return n
}

// since returns what was counted since an earlier reading.
func (e memoryErrors) since(before memoryErrors) memoryErrors {
	e.corrected, e.uncorrected = e.corrected-before.corrected, e.uncorrected-before.uncorrected
	e.exceptions -= before.exceptions
	for name, n := range before.modules {
		now := e.modules[name]
		e.modules[name] = [2]int64{now[0] - n[0], now[1] - n[1]}
	}
	maps.DeleteFunc(e.modules, func(_ string, n [2]int64) bool { return n == [2]int64{} })
	return e
}

func (e memoryErrors) String() string {
	text := "no EDAC"
	if e.controllers > 0 {
		text = fmt.Sprintf("%d corrected errors, %d uncorrected", e.corrected, e.uncorrected)
	}
	if e.exceptions > 0 {
		text += fmt.Sprintf(", %d machine check exceptions", e.exceptions)
	}
	return text
}

func (e memoryErrors) report(log io.Writer) {
	if e.controllers == 0 {
		fmt.Fprintln(log, "memory: the kernel has no driver for the memory controllers (EDAC): what they correct is not seen")
		return
	}
	fmt.Fprintf(log, "memory: %d memory controllers: %s\n", e.controllers, e)
	for _, name := range slices.Sorted(maps.Keys(e.modules)) {
		fmt.Fprintf(log, "memory: module %s: %d corrected errors, %d uncorrected\n", name, e.modules[name][0],
			e.modules[name][1])
	}
}

// fault returns what is wrong if so many errors may have been corrected; nil where nothing is.
func (e memoryErrors) fault(corrected int64) error {
	if e.corrected <= corrected && e.uncorrected <= 0 && e.exceptions <= 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(e.modules))
	where := ""
	if len(names) > 0 {
		where = ", in " + strings.Join(names, ", ")
	}
	return finalf(trivet.FaultMachine, "memory: the hardware has counted %s during the test%s; %d corrected ones are "+
		"allowed", e, where, corrected)
}

// line is the first line of a file of the kernel; empty where it cannot be read.
func line(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(first)
}

func count(root fs.FS, name string) int64 {
	n, _ := strconv.ParseInt(line(root, name), 10, 64)
	return n
}
